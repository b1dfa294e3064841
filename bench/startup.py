#!/usr/bin/env python3
"""What a short process costs under Tally, and in which phase of the monitor's work.

    bench/startup.py --tally build/release/tally [--tally OTHER] [--runs 11] [--only true,loop]

One such process, a shell's loop of 50, 50 subshells (fork
without exec), `make -j2` of a small C project.  Several builds are measured round by round,
natively first; a figure is the median of the rounds, for wall clock and CPU time (user + system of
everything the command started).  Then, of each build's last round, the milliseconds of each phase
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
    objects = " ".join(f"{name}.o" for name in [*names, "main"])
    (project / "Makefile").write_text(
        f"all: {objects}\n\tgcc -o all {objects}\n%.o: %.c\n\tgcc -O1 -c -o $@ $<\n",
        encoding="ascii")
    return {
        "true": ["/bin/true"],
        "loop": loop("/bin/true"),
        "subshells": loop("( : )"),
        "make": ["make", "-j2", "-s", "-C", str(project)],
    }


def clean(folder):
    for path in [*(folder / "project").glob("*.o"), folder / "project" / "all"]:
        path.unlink(missing_ok=True)


def measure(command, folder):
    clean(folder)
    started = time.monotonic()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", action="append", required=True)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="")
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
                for number, build in enumerate(builds):
                    file = f"{number}.tally"
                    times[number].append(measure([build, "profile", "-o", file, "--",
                                                  *table[name]], folder))
                    split[name, number] = phases(folder / file)
            for build, rounds in times.items():
                walls = [1000 * wall for wall, _ in rounds]
                cpu = 1000 * statistics.median(cpu for _, cpu in rounds)
                print(f"| {name} | {build} | {statistics.median(walls):.1f} | {cpu:.1f} "
                      f"| {min(walls):.1f}-{max(walls):.1f} |", flush=True)
    print("\nPhases, ms of the last round:")
    for (name, number), (sums, runs) in split.items():
        print(f"{name}, build {number}, {runs} runs:",
              ", ".join(f"{phase} {value:.1f}" for phase, value in sums.most_common()))


if __name__ == "__main__":
    sys.exit(main())
