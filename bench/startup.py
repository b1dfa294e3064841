#!/usr/bin/env python3
"""What a short process costs under Tally, and in which phase of the monitor's work.

    bench/startup.py --tally build/release/tally [--tally OTHER] [--runs 11] [--only true,loop]
                     [--no-opt NAME]

One such process, a shell's loop of 50, 50 subshells (fork without exec), `make -j2` of a small C
project; and large programs that have little to do: cc1 compiles hello.c, python3 runs nothing.
Several builds are measured round by round, natively first, each in a first run, which finds nothing
that earlier ones have left, and in a later one.  `--no-opt` is measured beside each later run.  A
figure is the median of the rounds, for wall clock and CPU time (user + system of everything the
command started).  Then, of each one's last round, the milliseconds of each phase
(facts `us_...` of the runs, docs/formats.md), summed over all runs of the profile.
"""

import argparse
import collections
import os
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

import run

FILES = 6


def loop(body, times=50):
    return ["sh", "-c", f"i=0; while [ $i -lt {times} ]; do {body}; i=$((i+1)); done"]


def commands(folder):
    project = folder / "project"
    project.mkdir()
    names = [f"part{number}" for number in range(FILES)]
    for number, name in enumerate(names):
        (project / f"{name}.c").write_text(
            f"#include <stdio.h>\nint {name}(int x) {{ for (int i = 0; i < x; ++i) "
            f"printf(\"%d\\n\", i * {number}); return x; }}\n", encoding="ascii")
    (project / "main.c").write_text(
        "".join(f"int {name}(int);\n" for name in names) + "int main(void) { return "
        + " + ".join(f"{name}(0)" for name in names) + "; }\n", encoding="ascii")
    (folder / "hello.c").write_text(
        "#include <stdio.h>\nint main(void) { printf(\"hello\\n\"); return 0; }\n",
        encoding="ascii")
    subprocess.run(["gcc", "-E", "hello.c", "-o", "hello.i"], cwd=folder, check=True)
    cc1 = subprocess.run(["gcc", "-print-prog-name=cc1"], check=True, capture_output=True,
                         text=True).stdout.strip()
    objects = " ".join(f"{name}.o" for name in [*names, "main"])
    (project / "Makefile").write_text(
        f"all: {objects}\n\tgcc -o all {objects}\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n",
        encoding="ascii")
    return {
        "true": ["/bin/true"],
        "loop": loop("/bin/true"),
        "subshells": loop("( : )"),
        "make": ["make", "-j2", "-s", "-C", str(project)],
        "cc1": [cc1, "-quiet", "-O2", str(folder / "hello.i"), "-o", str(folder / "hello.s")],
        "python3": ["python3", "-c", "pass"],
    }


def clean(folder):
    for path in [*(folder / "project").glob("*.o"), folder / "project" / "all"]:
        path.unlink(missing_ok=True)


def measure(command, folder, cache=""):
    clean(folder)
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                               env=dict(os.environ, TALLY_CACHE=str(cache)))
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: status {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime


def phases(profile):
    """Milliseconds by phase, and how many runs the profile has."""
    sums = collections.Counter()
    with sqlite3.connect(profile) as database:
        for name, value in database.execute("SELECT name, value FROM facts WHERE extra = 1"):
            if name.startswith("us_"):
                sums[name[3:]] += int(value) / 1000
        runs = database.execute("SELECT count(*) FROM runs").fetchone()[0]
        cpu = database.execute("SELECT sum(value) FROM facts WHERE name = 'monitor_cpu_seconds'")
        sums["monitor's CPU"] = 1000 * cpu.fetchone()[0]
    return sums, runs


def ways(builds, no_opt, folder):
    """What each round measures: its name, the command line, what earlier runs have left."""
    for number, build in enumerate(builds):
        line = [build, "profile", "-o", "profile.tally"]
        yield f"{number} first", line, ""
        yield f"{number} later", line, folder.with_suffix(f".cache{number}")
        if no_opt:
            yield (f"{number} later, {no_opt} off", [*line, f"--no-opt={no_opt}"],
                   folder.with_suffix(f".cache{number}.{no_opt}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", action="append", required=True)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="")
    parser.add_argument("--no-opt", default="")
    options = parser.parse_args()
    builds = [shutil.which(build) or build for build in map(os.path.abspath, options.tally)]
    with tempfile.TemporaryDirectory(prefix="startup-") as folder:
        folder = pathlib.Path(folder)
        table = commands(folder)
        wanted = options.only.split(",") if options.only else list(table)
        print("| program | build | wall ms | CPU ms | wall min-max |\n|---|---|---:|---:|---:|")
        split = {}
        for name in wanted:
            times = collections.defaultdict(list)
            for _ in range(options.runs):
                times["native"].append(measure(table[name], folder))
                for how, line, cache in ways(builds, options.no_opt, folder / name):
                    line = [*line, "--", *table[name]]
                    for _ in range(0 if not cache or cache.exists() else run.TEACHING):
                        measure(line, folder, cache)
                    times[how].append(measure(line, folder, cache))
                    split[name, how] = phases(folder / "profile.tally")
            for build, rounds in times.items():
                walls = [1000 * wall for wall, _ in rounds]
                cpu = 1000 * statistics.median(cpu for _, cpu in rounds)
                print(f"| {name} | {build} | {statistics.median(walls):.1f} | {cpu:.1f} "
                      f"| {min(walls):.1f}-{max(walls):.1f} |", flush=True)
    print("\nPhases, ms of the last round:")
    for (name, how), (sums, runs) in split.items():
        print(f"{name}, {how}, {runs} runs:",
              ", ".join(f"{phase} {value:.1f}" for phase, value in sums.most_common()))


if __name__ == "__main__":
    sys.exit(main())
