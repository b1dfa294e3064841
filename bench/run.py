#!/usr/bin/env python3
"""Speed, counters and increments of Tally on real programs, side by side in one run.

For each program, round by round: natively, with a counter in every block (*slow*), with counters
outside a maximum spanning tree (*quick*), the same with measured weights (*feedback*) and, if
wanted, under callgrind.  CPU time is user + system time of everything the command started (wait4),
so the monitor's share is in it.  A ratio is the median of the rounds' own ratios.  Every run's
output, stderr and exit status must equal the native one's, and every profile must be balanced;
whatever is not is listed and the exit status is 1.

usage: run.py --tally=PATH [--runs=5] [--only=NAME,...] [--scale=1] [--callgrind]
              [--placements=blocks,edges,feedback,again] [--out=bench/results.md]
"""

import argparse
import contextlib
import dataclasses
import datetime
import fcntl
import hashlib
import json
import math
import os
import pathlib
import platform
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import inputs
import programs

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / ".work"
NAMES = {"blocks": "slow", "edges": "quick", "feedback": "feedback"}
AGAIN = "again"  # edges, in a run that finds what earlier ones have left
TEACHING = 2  # these; what two of them did alike, later ones rely on
# A program that writes the time into its output: that line is not compared.
VOLATILE = re.compile(rb"^# Render Date: .*\n", re.M)
KB_PER_MB = 1024
CLAIMED = []


@dataclasses.dataclass
class Run:
    cpu_s: float
    wall_s: float
    status: int
    digest: str
    stderr: bytes
    peak_kb: int  # of the command itself, not of what it started


class PeakWatch(threading.Thread):
    """The highest resident size of one process, as long as it lives.

    wait4 tells the maximum over the process and its children, which would be the target's."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path = f"/proc/{pid}/status"
        self.peak_kb = 0
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.02):
            with contextlib.suppress(OSError):
                match = re.search(r"VmHWM:\s+(\d+)", pathlib.Path(self.path).read_text())
                if match:
                    self.peak_kb = max(self.peak_kb, int(match[1]))


def run(argv, program, watch=False, cache=""):
    """Runs argv as `program` wants to be run and measures all it starts.

    cache: the folder where Tally finds what earlier runs have left, and leaves it; none at all by
    default, so that every run is like the first of its program.
    """
    if program.output:
        program.output.unlink(missing_ok=True)
    environment = dict(os.environ, TALLY_CACHE=str(cache), **program.environment)
    out, err = WORK / "stdout", WORK / "stderr"
    with open(out, "wb") as stdout, open(err, "wb") as stderr, \
            open(program.stdin or os.devnull, "rb") as stdin:
        started = time.monotonic()
        process = subprocess.Popen(argv, env=environment, cwd=WORK, stdin=stdin, stdout=stdout,
                                   stderr=stderr)
        watcher = PeakWatch(process.pid) if watch else None
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if watcher:
            watcher.over.set()
            watcher.join()
    digest = hashlib.sha256()
    for path in (out, program.output):
        if path:
            digest.update(VOLATILE.sub(b"", path.read_bytes()) if path.exists() else b"missing")
    return Run(usage.ru_utime + usage.ru_stime, wall_s, process.returncode, digest.hexdigest(),
               err.read_bytes(), watcher.peak_kb if watcher else 0)


def claim_work_folder():
    """Ends the program if another benchmark uses bench/.work: outputs would be mixed up."""
    WORK.mkdir(parents=True, exist_ok=True)
    lock = open(WORK / "lock", "w", encoding="ascii")
    CLAIMED.append(lock)  # closed, and so given up, when the program ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another benchmark is running in {WORK}; wait for its end")


def find_key(value, key):
    """The first value of `key` anywhere in a JSON document."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            found = find_key(item, key)
            if found is not None:
                return found
    return None


def profile_facts(tally, path):
    """Facts of the run from the profile file, and what the report says: balance, instructions."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        facts = dict(database.execute("SELECT name, value FROM facts WHERE run = 0"))
    done = subprocess.run([tally, "report", str(path), "--format=json"], capture_output=True,
                          text=True)
    report = json.loads(done.stdout) if done.returncode == 0 else {}
    facts["balanced"] = bool(find_key(report, "balanced"))
    facts["instructions"] = report.get("totals", {}).get("instructions")
    return facts


class Bench:
    def __init__(self, options, switched_off=()):
        self.options = options
        self.switched_off = [f"--no-opt={name}" for name in switched_off]
        self.complaints = []
        self.rounds = 0  # complete ones
        self.cells = {}  # (program, way) -> [Run]
        self.facts = {}  # (program, way) -> facts of the last profile

    def complain(self, words):
        self.complaints.append(words)
        print("  NOT AS IT SHOULD BE:", words, flush=True)

    def profile_path(self, program, way):
        return WORK / f"{program.name.replace(' ', '-')}.{way}.tally"

    def command(self, program, way):
        if way == "native":
            return program.argv
        if way == "callgrind":
            return ["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes",
                    f"--callgrind-out-file={WORK / 'callgrind.out'}", *program.argv]
        placement = "edges" if way == AGAIN else way
        if way == "feedback":
            placement += f"={self.profile_path(program, 'edges')}"
        return [self.options.tally, "profile", f"--placement={placement}", *self.switched_off, "-o",
                str(self.profile_path(program, way)), "--", *program.argv]

    def measure(self, program, way, round_number):
        cache = WORK / "recall" if way == AGAIN else ""
        if way == AGAIN and round_number == 0:
            for _ in range(TEACHING):
                run(self.command(program, way), program, cache=cache)
        result = run(self.command(program, way), program,
                     watch=way not in ("native", "callgrind") and round_number == 0, cache=cache)
        self.cells.setdefault((program.name, way), []).append(result)
        native = self.cells[(program.name, "native")][0]
        # valgrind has its own things to say on stderr; without counters Tally says that.
        for what in ("status", "digest", "stderr")[:2 if way in ("callgrind", "none") else 3]:
            if getattr(result, what) != getattr(native, what):
                last = result.stderr.decode(errors="replace").strip("\0\n ").splitlines()[-1:]
                self.complain(f"{program.name}, {way}: {what} differs from the native run: "
                              f"{' '.join(last)[-200:]}")
        if way in (*NAMES, AGAIN) and result.status == native.status and round_number == 0:
            self.keep_facts(program, way)
        print(f"  {program.name:16}{way:10}{result.cpu_s:8.2f} s cpu {result.wall_s:8.2f} s wall",
              flush=True)

    def keep_facts(self, program, way):
        try:
            facts = profile_facts(self.options.tally, self.profile_path(program, way))
        except (sqlite3.Error, OSError, ValueError) as error:
            self.complain(f"{program.name}, {way}: no readable profile: {error}")
            return
        self.facts[(program.name, way)] = facts
        if facts["balanced"] is not True:
            self.complain(f"{program.name}, {way}: the profile is not balanced")

    def run_all(self, table):
        """^C ends it with the rounds that are complete."""
        try:
            for number in range(self.options.runs):
                print(f"round {number + 1} of {self.options.runs}", flush=True)
                self.run_round(table, number)
                self.rounds = number + 1
        except KeyboardInterrupt:
            if self.rounds == 0:
                raise
            for runs in self.cells.values():
                del runs[self.rounds:]

    def run_round(self, table, number):
        for program in table:
            for way in ["native", *self.options.placements]:
                self.measure(program, way, number)
            # Once: it is slow, and its ratio is a matter of tens, not of per cent.
            if self.options.callgrind and number == 0:
                self.measure(program, "callgrind", number)

    def cpu(self, name, way):
        runs = self.cells.get((name, way))
        return statistics.median(r.cpu_s for r in runs) if runs else None

    def ratios(self, name, way):
        """One a round: the machine's own speed drifts between rounds, much less within one."""
        natives, others = (self.cells.get((name, w), []) for w in ("native", way))
        return [o.cpu_s / n.cpu_s for n, o in zip(natives, others) if n.cpu_s > 0]

    def ratio(self, name, way):
        found = self.ratios(name, way)
        return statistics.median(found) if found else None

    def spread(self, name, way):
        """The lowest and the highest of the rounds' ratios."""
        found = self.ratios(name, way)
        return f"{min(found):.2f}-{max(found):.2f}" if found else "-"


def row(*cells):
    return "| " + " | ".join(str(c) for c in cells) + " |"


def number(value, form="{:.2f}"):
    return "-" if value is None else form.format(value)


def speed_table(bench, table, ways):
    titles = [NAMES.get(way, way) for way in ways]
    lines = [row("program", "native s", *titles, "slow / quick", "quick from-to", "monitor MB"),
             row("---", *["---:"] * (len(ways) + 4))]
    for program in table:
        ratios = {way: bench.ratio(program.name, way) for way in ways}
        slow, quick = ratios.get("blocks"), ratios.get("edges")
        runs = bench.cells.get((program.name, "edges"), [])
        peak = max((r.peak_kb for r in runs), default=0)
        lines.append(row(program.name, number(bench.cpu(program.name, "native")),
                         *(number(ratios[way]) for way in ways),
                         number(slow / quick if slow and quick else None),
                         bench.spread(program.name, "edges"),
                         number(peak / KB_PER_MB if peak else None, "{:.0f}")))
    means = []
    for way in ways:
        values = [r for p in table if (r := bench.ratio(p.name, way))]
        means.append(number(math.exp(statistics.fmean(map(math.log, values)))
                            if values else None))
    lines.append(row("**geometric mean**", "", *(f"**{m}**" for m in means), "", "", ""))
    return lines


def increments_table(bench, table):
    """As Tables 1 and 2 of the paper: how many counters, and how often they were incremented."""
    def fact(name, way, key):
        value = bench.facts.get((name, way), {}).get(key)
        return int(value) if value is not None else None

    lines = [row("program", "counters slow", "quick", "feedback", "increments slow", "quick",
                 "feedback", "slow / quick", "quick / feedback"), row("---", *["---:"] * 8)]
    for program in table:
        counters = [fact(program.name, way, "counters") for way in NAMES]
        increments = [fact(program.name, way, "counter_increments") for way in NAMES]
        slow, quick, feedback = increments
        lines.append(row(program.name, *(number(c, "{:,}") for c in counters),
                         *(number(i, "{:,}") for i in increments),
                         number(slow / quick if slow and quick else None),
                         number(quick / feedback if quick and feedback else None)))
    return lines


def startup_ms(tally, runs):
    """What one profile costs when the program does nothing."""
    program = programs.Program("true", [programs.find("true")])
    command = [tally, "profile", "-o", str(WORK / "true.tally"), "--", *program.argv]
    return 1000 * statistics.median(run(command, program).wall_s for _ in range(max(5, runs)))


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return (f"{model[1] if model else platform.machine()}, {os.cpu_count()} processors, "
            f"Linux {platform.release()}")


def results(bench, table, options):
    version = subprocess.run([options.tally, "--version"], capture_output=True,
                             text=True).stdout.strip()
    ways = list(options.placements) + (["callgrind"] if options.callgrind else [])
    lines = [
        "# Benchmark results", "",
        f"Made by `bench/run.py` on {datetime.date.today()}: {machine()}; {version or 'tally'}; "
        f"median of the ratios of {bench.rounds} rounds, scale {options.scale:g}.", "",
        "## Speed", "",
        "CPU time of target plus monitor over native. *slow* counts every block, *quick* the edges "
        "outside a maximum spanning tree, *feedback* the same with measured weights; all three as "
        "in the first run of a program. *again* is *quick* with what an earlier run has left.", "",
        *speed_table(bench, table, ways), "",
        f"`tally profile -- /bin/true`: {startup_ms(options.tally, options.runs):.0f} ms.", "",
        "## Counters and increments", "",
        "Counters placed in translated code, and how often they were incremented.", "",
        *increments_table(bench, table), "",
        "## Checks", "",
    ]
    if bench.complaints:
        lines += [f"- {words}" for words in bench.complaints]
    else:
        lines.append("Every run printed the same bytes and ended with the same status as natively; "
                     "every profile is balanced.")
    return "\n".join(lines) + "\n"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs")
    parser.add_argument("--callgrind", action="store_true")
    parser.add_argument("--placements", default="blocks,edges,feedback,again")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="default: bench/results.md for a full run, else only the terminal")
    options = parser.parse_args()
    options.tally = str(pathlib.Path(options.tally).resolve())
    options.placements = [p for p in options.placements.split(",") if p]
    unknown = set(options.placements) - {*NAMES, AGAIN}
    if unknown:
        parser.error(f"no placement {', '.join(sorted(unknown))}")
    if "feedback" in options.placements and "edges" not in options.placements:
        parser.error("feedback takes its weights from edges: ask for both")
    return options


def main():
    options = parse_options()
    claim_work_folder()
    folder = WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    shutil.rmtree(WORK / "recall", ignore_errors=True)
    print("making inputs", flush=True)
    inputs.make_all(folder, options.scale)
    table = programs.programs(folder, WORK, options.scale)
    if options.only:
        wanted = options.only.split(",")
        table = [p for p in table if p.name in wanted]
    missing = [p.name for p in table if not shutil.which(p.argv[0])]
    if missing or not table:
        print("not installed or not known:", ", ".join(missing) or options.only)
        return 1
    bench = Bench(options)
    bench.run_all(table)
    text = results(bench, table, options)
    print("\n" + text)
    out = options.out
    if out is None and not options.only and options.scale == 1 and bench.rounds >= 3:
        out = HERE / "results.md"
    if out:
        with tempfile.NamedTemporaryFile("w", dir=out.parent, delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, out)
        print("written:", out)
    return 1 if bench.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
