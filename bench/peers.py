#!/usr/bin/env python3
"""Tally and other tools that count exactly, side by side in one run, on programs built for each.

For each program (peer_builds.py), round by round: natively, under `tally profile` (first run, and
with what an earlier one has left), built with gcc's -fprofile-generate (plain and atomic counters),
instrumented by BOLT, and with clang natively and with clang's -fprofile-generate.  Callgrind and
QEMU (without and with a plugin that counts instructions) are 2 to 70 times slower and come after
that, with inputs and rounds of their own.  CPU time is user + system time of all that the command
started; a ratio is over the same compiler's native build in the same round, its median shown with
the lowest and the highest.  Output and exit status must be the native ones, and a profile must have
been written: else the cell says what was wrong.  The exit status is 1 if anything was with Tally.

usage: peers.py --tally=PATH [--runs=3] [--only=NAME,...] [--scale=1] [--slow-scale=0.1]
                [--slow-runs=1] [--out=bench/peers.md] [--build-only]
"""

import argparse
import dataclasses
import datetime
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import inputs
import peer_builds
import programs
import run

WORK = peer_builds.WORK
TIMEOUT_S = 600
# Ways to run a program; the name of a build means that build alone.
FAST = {"tally": "Tally", "again": "Tally again", "gcc-profile": "gcc", "gcc-atomic": "gcc atomic",
        "bolt": "BOLT", "clang-profile": "clang"}
SLOW = {"tally": "Tally", "callgrind": "callgrind", "qemu": "QEMU", "qemu-count": "QEMU counting"}
OURS = ("tally", "again")


@dataclasses.dataclass
class Cell:
    """What is known of one program run in one way."""
    ratios: list = dataclasses.field(default_factory=list)
    failure: str = ""

    def text(self):
        if self.failure:
            return self.failure
        if not self.ratios:
            return "-"
        middle = f"{statistics.median(self.ratios):.2f}"
        if len(self.ratios) == 1:
            return middle
        return f"{middle} ({min(self.ratios):.2f}-{max(self.ratios):.2f})"


def build_of(way):
    return way if way in peer_builds.FLAVORS or way == "bolt" else "gcc"


def base_of(way):
    return "clang" if way.startswith("clang") else "gcc"


def profile_of(way, recipe):
    """Where a way leaves its counts: a folder and a pattern."""
    return {"tally": (WORK, "counts.tally"), "again": (WORK, "counts.tally"),
            "callgrind": (WORK, "counts.callgrind"), "qemu-count": (WORK, "counts.qemu"),
            "bolt": (WORK / recipe / "bolt", "counts.fdata"),
            "gcc-profile": (WORK / recipe / way, "*.gcda"),
            "gcc-atomic": (WORK / recipe / way, "*.gcda"),
            "clang-profile": (WORK, "counts.profraw")}.get(way)


def command(options, way, argv):
    before = {
        "tally": [options.tally, "profile", "-o", WORK / "counts.tally", "--"],
        "again": [options.tally, "profile", "-o", WORK / "counts.tally", "--"],
        "callgrind": ["valgrind", "-q", "--tool=callgrind", "--dump-instr=yes",
                      "--collect-jumps=yes", f"--callgrind-out-file={WORK / 'counts.callgrind'}"],
        "qemu": ["qemu-x86_64"],
        "qemu-count": ["qemu-x86_64", "-plugin", WORK / "qemu_count.so", "-d", "plugin",
                       "-D", WORK / "counts.qemu"],
    }.get(way, [])
    return ["timeout", str(TIMEOUT_S), *map(str, before), *argv]


def failure(result, native):
    """In words, what is wrong with a run; "" if nothing is."""
    if result.status == 124:
        return f"hangs ({TIMEOUT_S} s)"
    if result.status < 0 or result.status > 128:
        number = -result.status if result.status < 0 else result.status - 128
        return f"crashes (signal {number})"
    if result.status != native.status:
        return f"exit status {result.status}"
    return "wrong output" if result.digest != native.digest else ""


class Comparison:
    """Rounds of some programs, each in some ways, at one scale."""

    def __init__(self, options, ways, scale):
        self.options, self.ways = options, ways
        folder = run.WORK / ("inputs" if scale == 1 else f"inputs-{scale:g}")
        inputs.make_all(folder, scale)
        self.programs = [p for p in programs.programs(folder, run.WORK, scale)
                         if p.name in options.programs]
        self.cells = {(p.name, way): Cell() for p in self.programs for way in ways}
        self.native_s = {}  # (program, compiler) -> [s]
        self.complaints = []

    def execute(self, program, way):
        """One run and whether it left a profile."""
        build = self.options.builds[peer_builds.PROGRAMS[program.name], build_of(way)]
        where = profile_of(way, peer_builds.PROGRAMS[program.name])
        for path in where[0].rglob(where[1]) if where else ():
            path.unlink()
        environment = dict(program.environment, LLVM_PROFILE_FILE=str(WORK / "counts.profraw"))
        changed = dataclasses.replace(program, environment=environment)
        cache = WORK / "recall" if way == "again" else ""
        result = run.run(command(self.options, way, [str(build), *program.argv[1:]]), changed,
                         cache=cache)
        left = not where or any(p.stat().st_size for p in where[0].rglob(where[1]))
        return result, left

    def measure(self, program, way, natives):
        cell = self.cells[program.name, way]
        build = self.options.builds[peer_builds.PROGRAMS[program.name], build_of(way)]
        base = natives.get(base_of(way))
        if isinstance(build, str) or base is None or "gcc" not in natives:
            cell.failure = cell.failure or (build if isinstance(build, str) else "no native run")
        if cell.failure:
            return
        if way == "again" and not cell.ratios:
            self.execute(program, way)
        result, left = self.execute(program, way)
        cell.failure = failure(result, natives["gcc"]) or ("" if left else "no profile")
        if way in OURS:
            self.judge_ours(program, way, result, natives["gcc"])
        if not cell.failure:
            cell.ratios.append(result.cpu_s / base.cpu_s)
        print(f"  {program.name:14}{way:14}{result.cpu_s:8.2f} s  {cell.failure}", flush=True)

    def judge_ours(self, program, way, result, native):
        cell = self.cells[program.name, way]
        if not cell.failure and result.stderr != native.stderr:
            cell.failure = "says: " + result.stderr.decode(errors="replace").strip()[-200:]
        if not cell.failure:
            facts = run.profile_facts(self.options.tally, WORK / "counts.tally")
            cell.failure = "" if facts["balanced"] else "not balanced"
        if cell.failure:
            self.complaints.append(f"{program.name}, {way}: {cell.failure}")

    def natives(self, program):
        """A run of each compiler's native build; one whose output differs from gcc's is none."""
        found = {}
        for flavor in dict.fromkeys(base_of(way) for way in self.ways):
            if isinstance(self.options.builds[peer_builds.PROGRAMS[program.name], flavor], str):
                continue
            result, _ = self.execute(program, flavor)
            if failure(result, found.get("gcc", result)) == "" and result.cpu_s > 0:
                found[flavor] = result
                self.native_s.setdefault((program.name, flavor), []).append(result.cpu_s)
        return found

    def rounds(self, number):
        for i in range(number):
            print(f"round {i + 1} of {number}", flush=True)
            for program in self.programs:
                natives = self.natives(program)
                for way in self.ways:
                    self.measure(program, way, natives)

    def native_text(self, name, flavor):
        times = self.native_s.get((name, flavor))
        return f"{statistics.median(times):.2f}" if times else "-"

    def mean(self, way):
        """Over the programs where it worked; how many, if not all."""
        values = [statistics.median(c.ratios) for (_, w), c in self.cells.items()
                  if w == way and c.ratios and not c.failure]
        if not values:
            return "-"
        of = "" if len(values) == len(self.programs) else f" (of {len(values)})"
        return f"**{statistics.geometric_mean(values):.2f}**{of}"

    def table(self):
        flavors = list(dict.fromkeys(base_of(way) for way in self.ways))
        columns = [(f, w) for f in flavors for w in [None, *self.ways]
                   if w is None or base_of(w) == f]
        names = [self.ways[w] if w else f"{f} native s" for f, w in columns]
        lines = ["| " + " | ".join(["program", *names]) + " |",
                 "| --- |" + " ---: |" * len(names)]
        for program in self.programs:
            cells = [self.cells[program.name, w].text().split(":")[0] if w
                     else self.native_text(program.name, f) for f, w in columns]
            lines.append("| " + " | ".join([program.name, *cells]) + " |")
        means = [self.mean(w) if w else "" for _, w in columns]
        return [*lines, "| " + " | ".join(["**geometric mean**", *means]) + " |"]

    def failures(self):
        return [f"- {name}, {self.ways[way]}: {cell.failure}"
                for (name, way), cell in self.cells.items() if cell.failure]


def versions(options):
    """The first line in which each tool says its version."""
    words = []
    for tool in (options.tally, "gcc", "clang", "llvm-bolt-16", "valgrind", "qemu-x86_64"):
        done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
        words.append(f"{pathlib.Path(tool).name} {found[0] if found else '?'}")
    return ", ".join(words)


def document(options, fast, slow):
    quick = "" if options.scale == 1 else " **A quick run with small inputs: no measurement.**"
    rounds = f"{options.runs} interleaved rounds" if options.runs > 1 else "One round"
    lines = [
        "# Tally beside other tools that count", "",
        f"Made by `bench/peers.py` on {datetime.date.today()}: {run.machine()}; "
        f"{versions(options)}.{quick}", "",
        "CPU time over native: user + system time of everything that was started (Tally's monitor "
        "too), over the native build of the same compiler in the same round; medians, in brackets "
        "the lowest and the highest. All builds are of Debian's sources with `-O2 -no-pie`. What "
        "is in the table gave the native run's output and exit status, and a profile.", "",
        "- *Tally*: `tally profile`, first run of the program; *again*: with what an earlier run "
        "left. Counts blocks and edges of the program, its libraries and the loader; the native "
        "build, as it is.",
        "- *gcc*: `-fprofile-generate`, counters that threads may spoil; *gcc atomic*: with "
        "`-fprofile-update=atomic`. *clang*: `-fprofile-generate`. They count the edges of the "
        "program's own code only, and some values besides (targets of indirect calls, sizes of "
        "copies).",
        "- *BOLT*: `llvm-bolt -instrument` of gcc's build, linked with `--emit-relocs`; counts the "
        "program's own code, with `lock` before each increment.",
        "- cjpeg is built without its SIMD code, since compilers do not count assembly. Not here, "
        "since building them takes many minutes for each column: cc1, python3, perl, povray; and "
        "gnugo, a part of whose source was not to be had from Debian's archive.", "",
        f"{rounds}, scale {options.scale:g}:", "", *fast.table(), "",
        f"The slow ones, scale {options.slow_scale:g}, rounds: {options.slow_runs}. Inputs are so "
        "small that starting up is a good part of Tally's ratio. *callgrind*: `--dump-instr=yes "
        "--collect-jumps=yes`, so instructions, jumps and calls. *QEMU*: `qemu-x86_64`, without "
        "counting; *QEMU counting*: with a plugin (`bench/qemu_count.c`) that only knows how many "
        "instructions there were in all.", "", *slow.table(), ""]
    failed = fast.failures() + slow.failures()
    if failed:
        lines += ["What failed:", "", *dict.fromkeys(failed), ""]
    return "\n".join(lines)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--slow-scale", type=float, default=None,
                        help="of callgrind and QEMU; default: a tenth of --scale")
    parser.add_argument("--slow-runs", type=int, default=1)
    parser.add_argument("--build-only", action="store_true", help="fetch and compile, no runs")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="default: bench/peers.md for a full run, else only the terminal")
    options = parser.parse_args()
    options.tally = str(pathlib.Path(options.tally).resolve())
    if options.slow_scale is None:
        options.slow_scale = options.scale / 10
    options.programs = options.only.split(",") if options.only else list(peer_builds.PROGRAMS)
    unknown = set(options.programs) - set(peer_builds.PROGRAMS)
    if unknown:
        parser.error(f"not built here: {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse_options()
    run.claim_work_folder()
    missing = peer_builds.missing_tools()
    if missing:
        print("install first: apt-get install", *missing)
        return 1
    print("building (a quarter of an hour the first time)", flush=True)
    options.builds = peer_builds.build_all(
        list(dict.fromkeys(peer_builds.PROGRAMS[name] for name in options.programs)))
    peer_builds.plugin()
    if options.build_only:
        for (name, flavor), result in options.builds.items():
            print(f"  {name:10}{flavor:15}{result}")
        return 0
    shutil.rmtree(WORK / "recall", ignore_errors=True)
    fast = Comparison(options, FAST, options.scale)
    fast.rounds(options.runs)
    slow = Comparison(options, SLOW, options.slow_scale)
    slow.rounds(options.slow_runs)
    text = document(options, fast, slow)
    print("\n" + text)
    out = options.out
    if out is None and not options.only and options.scale == 1:
        out = run.HERE / "peers.md"
    if out:
        out.write_text(text)
        print("written:", out)
    for words in fast.complaints + slow.complaints:
        print("NOT AS IT SHOULD BE:", words)
    return 1 if fast.complaints or slow.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
