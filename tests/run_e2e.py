#!/usr/bin/env python3
"""End-to-end tests: Tally against the single-step oracle and against running natively.

  tests/run_e2e.py [-k PATTERN] [--matrix=ci|full] [--quick] [--jobs=2] [--tally=PATH] [--keep]

Tests are found by name: every program of tests/programs in each configuration of its matrix
(programs/NAME/COMPILER-LEVEL-PIE-LINK), and every executable file of tests/e2e (e2e/NAME; exit
status 0 passes, 77 skips).  A test keeps its folder tests/.work/run/ID when it fails, and prints
the command that repeats it alone.

What is checked of a program:
  1. natively it ends as its header says (`// expect:`);
  2. under Tally: same output, same stderr, same end, nothing left running;
  3. `tally report` says balanced, and names no issue unless the header says `// inexact:`;
     `tally check` finds nothing;
  4. `// count:` lines, and with `// oracle: step` every instruction, block, edge and returned call
     of every module against the single-stepper (oracle/compare.py);
  5. placements `blocks` and `feedback`, a run in which procedures are translated again all the
     time, and a later run of `edges`, give the same counts as the first run of `edges`.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

TESTS = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(TESTS)
sys.path.insert(0, os.path.join(TESTS, "oracle"))

import compare  # noqa: E402
import processes  # noqa: E402
import programs  # noqa: E402

WORK = os.path.join(TESTS, ".work")
TIMEOUT_S = 120
ORACLE_TIMEOUT_S = 400  # a step may take 100 us
E2E_TIMEOUT_S = 600

# Instead of a placement: edges, with counters that move all the time, with code that is left out
# until it runs, or with every jump through a table led by the program's index.
RENEWED = "renewed"
DEFERRED = "deferred"
INDEXED = "indexed"
STRESS = {
    RENEWED: ["--stress-renewal", "--no-opt=recall"],
    DEFERRED: ["--stress-defer", "--no-opt=recall"],
    INDEXED: ["--stress-index", "--no-opt=recall"],
}


class Failed(Exception):
    def __init__(self, *lines):
        super().__init__("\n".join(lines))
        self.lines = lines


class Skipped(Exception):
    pass


def build_stepper():
    """The oracle is compiled here, so that nothing of the product's build reaches it."""
    source = os.path.join(TESTS, "oracle", "stepper.cpp")
    digest = hashlib.sha256()
    for name in ("stepper.cpp", "classify.h", "modules.h"):
        with open(os.path.join(TESTS, "oracle", name), "rb") as f:
            digest.update(f.read())
    target = os.path.join(WORK, "stepper-" + digest.hexdigest()[:16])
    if not os.path.exists(target):
        os.makedirs(WORK, exist_ok=True)
        command = ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", source, "-o", target + ".new"]
        subprocess.run(command, check=True)
        os.rename(target + ".new", target)
    return target


class Suite:
    def __init__(self, options):
        self.options = options
        self.tally = os.path.abspath(options.tally)
        self.stepper = build_stepper()
        self.cpus = queue.SimpleQueue()
        allowed = sorted(os.sched_getaffinity(0))
        for slot in range(options.jobs):
            self.cpus.put(allowed[slot % len(allowed)])

    # One test of one program.

    def program_test(self, test_id, program, config, folder):
        if program.missing():
            raise Skipped("processor lacks " + " ".join(program.missing()))
        build_folder = os.path.join(WORK, "build")
        os.makedirs(build_folder, exist_ok=True)
        executable = programs.build(program, config, build_folder)
        case = Case(self, program, executable, folder)
        case.check_native()
        counted = case.check_tally("edges")
        case.check_closed(counted.instructions, "tally")
        if program.get("oracle", "step") == "step":
            case.check_oracle(counted)
        if program.get("oracle") != "output" and not self.options.quick:
            # At last two later runs: in the one, counters lie where what the first has left says;
            # the other has its procedures from there, too.
            feedback = "feedback=" + case.profile("edges")
            for placement in ("blocks", RENEWED, DEFERRED, INDEXED, feedback, "edges", "edges"):
                case.check_placement(placement, counted)

    def script_test(self, path, folder):
        env = dict(os.environ, TALLY=self.tally, STEPPER=self.stepper, WORK=folder, LC_ALL="C")
        env["PYTHONPATH"] = os.path.join(TESTS, "oracle")
        env["TALLY_CACHE"] = os.path.join(folder, "cache")
        done = processes.run([path], folder, "test", E2E_TIMEOUT_S, env=env, randomize=True)
        text = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
        if done.status == 77:
            raise Skipped(text[-1] if text else "")
        if done.status != 0 or done.leftover:
            left = [f"left running: {done.leftover}"] if done.leftover else []
            raise Failed(f"{os.path.basename(path)} ended with {done.end()}", *text[-40:], *left)

    # All tests.

    def tests(self):
        found = []
        for program in programs.find(os.path.join(TESTS, "programs")):
            full = self.options.matrix == "full"
            for config in program.configs() if full else program.ci_configs():
                test_id = f"programs/{program.name}/{'-'.join(config)}"
                found.append((test_id, (program, config)))
        scripts = os.path.join(TESTS, "e2e")
        for name in sorted(os.listdir(scripts)):
            path = os.path.join(scripts, name)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                found.append(("e2e/" + name.rsplit(".", 1)[0], path))
        return [t for t in found if re.search(self.options.pattern, t[0])]

    def one(self, test):
        test_id, what = test
        folder = os.path.join(WORK, "run", test_id)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        began = time.monotonic()
        try:
            if isinstance(what, str):
                self.script_test(what, folder)
            else:
                self.program_test(test_id, *what, folder)
            result, lines = "passed", []
        except Skipped as e:
            result, lines = "skipped", [str(e)]
        except (Failed, programs.BuildError) as e:
            result, lines = "failed", str(e).splitlines()
        except (OSError, ValueError, KeyError, subprocess.SubprocessError) as e:
            result, lines = "failed", [f"{type(e).__name__}: {e}"]
        if result != "failed" and not self.options.keep:
            shutil.rmtree(folder, ignore_errors=True)
        return test_id, result, lines, time.monotonic() - began

    def run(self):
        totals = {"passed": 0, "failed": 0, "skipped": 0}
        tests = self.tests()
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for test_id, result, lines, seconds in pool.map(self.one, tests):
                totals[result] += 1
                print(f"{result:7} {seconds:6.1f}s  {test_id}", flush=True)
                for line in lines:
                    print("          " + line)
                if result == "failed":
                    self.say_how_to_repeat(test_id)
        print(", ".join(f"{n} {word}" for word, n in totals.items()))
        return 1 if totals["failed"] or not tests else 0

    def say_how_to_repeat(self, test_id):
        print(f"          kept: {os.path.relpath(os.path.join(WORK, 'run', test_id))}")
        again = ["tests/run_e2e.py", "-k", f"^{test_id}$", "--matrix=" + self.options.matrix]
        if self.options.tally != default_tally():
            again.append("--tally=" + self.options.tally)
        print(f"          again: {shlex.join(again)}", flush=True)


class Case:
    """One program, built one way: its runs and what they must agree on."""

    def __init__(self, suite, program, executable, folder):
        self.suite = suite
        self.program = program
        self.command = [executable] + program.arguments()
        self.folder = folder
        self.env = dict(processes.ENVIRONMENT, TALLY_CACHE=os.path.join(folder, "cache"),
                        **program.environment())
        self.stdin = None
        self.native = None
        self.reported = None
        if program.get("stdin"):
            self.stdin = os.path.join(folder, "stdin")
            with open(self.stdin, "w", encoding="utf-8") as f:
                f.write(program.get("stdin").replace("\\n", "\n"))

    def require(self, problems):
        if problems:
            raise Failed(*problems)

    def run(self, command, label, timeout_s=TIMEOUT_S):
        home = os.path.join(self.folder, "cwd")
        os.makedirs(home, exist_ok=True)
        return processes.run(
            command, self.folder, label, timeout_s, stdin=self.stdin, env=self.env, cwd=home
        )

    def check_native(self):
        self.native = self.run(self.command, "native")
        expected = self.program.get("expect", "status=0")
        if self.native.end() != expected:
            raise Failed(f"natively: {self.native.end()}, the header says {expected}")

    def profile(self, placement):
        return os.path.join(self.folder, placement.split("=")[0] + ".tally")

    def check_tally(self, placement):
        label = placement.split("=")[0]
        file = self.profile(placement)
        options = STRESS.get(placement, ["--placement=" + placement])
        command = [self.suite.tally, "profile", "-o", file, *options, "--"]
        done = self.run(command + self.command, label)
        self.unharmed(done, label)
        self.reported = self.check_report(file)
        return compare.Counted(*(self.dump(k, file) for k in ("instructions", "blocks", "edges")))

    def unharmed(self, done, label):
        problems = []
        if done.end() != self.native.end():
            problems.append(f"{label}: ended with {done.end()}, natively {self.native.end()}")
        if done.stdout != self.native.stdout:
            problems.append(f"{label}: stdout differs (compare native.stdout, {label}.stdout)")
        if not self.program.get("inexact") and done.stderr != self.native.stderr:
            problems.append(f"{label}: stderr differs from native:")
            problems += done.stderr.decode(errors="replace").splitlines()[:10]
        if done.leftover:
            problems.append(f"{label}: left running: {done.leftover}")
        self.require(problems)

    def check_placement(self, placement, expected):
        """The same counts with other counters.  What threads do inside libc (locks that are taken,
        arenas, stacks that are kept) depends on who comes first: of them only closed counts."""
        counted = self.check_tally(placement)
        label = placement.split("=")[0]
        self.check_closed(counted.instructions, "tally, " + label)
        varies = "-pthread" in self.program.get("flags") or self.program.get("varies")
        if not varies:
            self.require(compare.same_counts(f"placements edges and {label}", expected, counted))

    def ask_tally(self, *arguments):
        done = subprocess.run(
            [self.suite.tally, *arguments], capture_output=True, timeout=TIMEOUT_S, cwd=self.folder
        )
        if done.returncode != 0 or done.stderr:
            said = done.stderr.decode(errors="replace").strip()
            raise Failed(f"tally {shlex.join(arguments)}: status {done.returncode}: {said}")
        return done.stdout

    def dump(self, what, file):
        data = self.ask_tally("dump", what, file, "--format=csv")
        with open(file.replace(".tally", f".{what}.csv"), "wb") as f:
            f.write(data)
        return data

    def check_report(self, file):
        report = json.loads(self.ask_tally("report", file, "--format=json"))
        with open(file.replace(".tally", ".report.json"), "w", encoding="utf-8") as f:
            json.dump(report, f, indent=1)
        inexact = self.program.get("inexact")
        if inexact and not report["issues"]:
            raise Failed(f"nothing is reported as inexact, but: {inexact}")
        if not inexact and report["issues"]:
            raise Failed("report names issues:", *(json.dumps(i) for i in report["issues"][:10]))
        flow = report["flow"]
        unbalanced = flow["balanced"] is not True or report["complaints"]
        if unbalanced and not self.program.get("unbalanced"):
            seen = flow["faults"][:8] + flow["undetermined"][:8] + report["complaints"][:8]
            raise Failed("report says that flow is not balanced:", *(json.dumps(x) for x in seen))
        self.require(self.threads_do_not_add_up(report))
        if not self.program.get("unbalanced"):
            self.require(self.contradictions(file))
        return report

    def contradictions(self, file):
        """What `tally check` finds in a correct profile: nothing."""
        done = subprocess.run([self.suite.tally, "check", file, "--format=csv"],
                              capture_output=True, text=True, timeout=TIMEOUT_S, cwd=self.folder)
        if done.returncode == 0 and not done.stderr:
            return []
        said = (done.stdout + done.stderr).splitlines()
        return [f"tally check ends with {done.returncode}:", *said[:10]]

    @staticmethod
    def threads_do_not_add_up(report):
        """What the threads executed is what the run executed, to the last instruction."""
        total = sum(thread["instructions"] for thread in report["threads"])
        if total == report["totals"]["instructions"]:
            return []
        return [f"the threads executed {total}, the program {report['totals']['instructions']}"]

    def check_closed(self, instructions, who):
        """`// count: symbol = N` lines, which also keep the oracle honest."""
        if not self.program.counts:
            return
        text = subprocess.run(["nm", self.command[0]], capture_output=True, text=True, check=True)
        fields = map(str.split, text.stdout.splitlines())
        symbols = {f[2]: int(f[0], 16) for f in fields if len(f) == 3}
        for symbol, expected in self.program.counts:
            if symbol not in symbols:
                raise Failed(f"no symbol {symbol} in the executable")
            got = instructions.get((self.command[0], symbols[symbol]), 0)
            if got != expected:
                raise Failed(f"{who}: {symbol} ran {got} times, the header says {expected}")

    def check_oracle(self, counted):
        oracle = self.stepped()
        self.check_closed(oracle.instructions, "oracle")
        self.require(
            compare.instructions(counted, oracle)
            + compare.blocks(counted, oracle)
            + compare.edges(counted, oracle)
            + compare.calls(counted, oracle)
            + compare.threads(self.reported, oracle)
        )

    def stepped(self):
        """The oracle's counts, kept for the next time the same executable is asked about."""
        key = self.oracle_key()
        store = os.path.join(WORK, "oracle", key)
        if os.path.exists(store + ".ends.csv"):
            return compare.Oracle(store)
        os.makedirs(os.path.dirname(store), exist_ok=True)
        prefix = os.path.join(self.folder, "oracle")
        cpu = self.suite.cpus.get()
        command = [self.suite.stepper, "-o", prefix, "--deny-rseq", f"--cpu={cpu}"]
        command += ["--limit=" + self.program.get("limit", "1000000"), "--"]
        try:
            done = self.run(command + self.command, "oracle-run", ORACLE_TIMEOUT_S)
        finally:
            self.suite.cpus.put(cpu)
        if done.end() != self.native.end() or done.stdout != self.native.stdout:
            said = done.stderr.decode(errors="replace").strip()
            raise Failed(f"the oracle disturbed the program: {done.end()} {said}")
        # The ends come last: they mark the set complete.
        for what in ("instructions", "edges", "calls", "threads", "ends"):
            shutil.copy(f"{prefix}.{what}.csv", f"{store}.{what}.csv")
        return compare.Oracle(store)

    def oracle_key(self):
        digest = hashlib.sha256(self.suite.stepper.encode())
        with open(self.command[0], "rb") as f:
            digest.update(f.read())
        digest.update(repr((self.command, sorted(self.env.items()))).encode())
        # What the loader does depends on its cache, which every installed package changes.
        for library in ("/lib64/ld-linux-x86-64.so.2", "/lib/x86_64-linux-gnu/libc.so.6",
                        "/etc/ld.so.cache"):
            digest.update(repr(os.stat(library).st_mtime_ns).encode())
        return digest.hexdigest()[:24]


def default_tally():
    return os.path.join(ROOT, "build", "release", "tally")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-k", dest="pattern", default="", help="regular expression on test ids")
    parser.add_argument("--matrix", choices=("ci", "full"), default="ci")
    parser.add_argument("--quick", action="store_true", help="only the default placement")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", action="store_true", help="keep folders of tests that pass")
    parser.add_argument("--list", action="store_true", help="only print the ids")
    parser.add_argument("--tally", default=default_tally())
    suite = Suite(parser.parse_args())
    if suite.options.list:
        print("\n".join(t[0] for t in suite.tests()))
        return 0
    if not os.access(suite.tally, os.X_OK):
        print(f"{suite.tally}: not there; build it first, or say --tally=PATH", file=sys.stderr)
        return 2
    return suite.run()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
