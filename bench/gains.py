#!/usr/bin/env python3
"""What each optimization gains: CPU time without it over CPU time with it.

All others stay on; but what an earlier run has left (`recall`) is used only where it, or what there
is only with it (`weights`, `order`, `defer`, `found`), is what is measured, since it takes most of
the work away from those that make first runs faster.  `ahead` and `tables` are switched off
together: each does some of the other's work.  CPU time is user + system time of the program and the
monitor; a figure is the median of the rounds' own ratios, above 1 where the optimization pays.
`sh` is a shell that starts fifty programs.

usage: gains.py --tally=PATH [--runs=3] [--only=NAME,...] [--names=NAME,...] [--scale=1]
"""

import argparse
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import inputs
import programs
import run

PROGRAMS = ("bzip2", "perl", "lua fannkuch", "python3", "sqlite3", "cc1", "gawk")
SHELL = programs.Program("sh", ["/bin/sh", "-c", "i=0; while [ $i -lt 50 ]; do /bin/true; "
                                "i=$((i+1)); done"])
RECALL = "recall"
LATER = ("weights", "order", "defer", "found")  # of later runs only
TOGETHER = ("ahead", "tables")


def names_of(tally):
    """The optimizations that this build has, from its own words."""
    said = subprocess.run([tally, "profile", "--no-opt=?", "--", "/bin/true"],
                          capture_output=True, text=True, check=False).stderr
    names = re.search(r"must be one of (.*)", said).group(1).split(", ")
    return ["+".join(TOGETHER), *(name for name in names if name not in TOGETHER)]


def seconds(options, program, off, cache):
    switched_off = [f"--no-opt={','.join(off)}"] if off else []
    line = [options.tally, "profile", "-o", str(run.WORK / "gains.tally"), *switched_off, "--",
            *program.argv]
    done = run.run(line, program, cache=cache)
    return done.cpu_s, (done.status, done.digest)


def measure(options, program, complaints):
    """For each name the ratios of the rounds."""
    ratios = {name: [] for name in options.names}
    cache = run.WORK / "gains-recall"
    shutil.rmtree(cache, ignore_errors=True)
    native = run.run(program.argv, program)
    expected = (native.status, native.digest)
    for _ in range(run.TEACHING):
        seconds(options, program, [], cache)  # leaves what the later ones find
    for _ in range(options.runs):
        with_it, output = seconds(options, program, [RECALL], "")
        outputs = [output]
        if {RECALL, *LATER} & set(options.names):
            again, output = seconds(options, program, [], cache)
            outputs.append(output)
        for name in options.names:
            if name == RECALL:
                ratios[name].append(with_it / again)
                continue
            if name in LATER:
                without, output = seconds(options, program, [name], cache)
                ratios[name].append(without / again)
            else:
                without, output = seconds(options, program, [RECALL, *name.split("+")], "")
                ratios[name].append(without / with_it)
            outputs.append(output)
        if any(output != expected for output in outputs):
            complaints.append(f"{program.name}: status or output differ from native")
    return ratios


def row(name, ratios):
    cells = [f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"
             for values in ratios.values()]
    return "| " + " | ".join([name, *cells]) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(PROGRAMS + (SHELL.name,)))
    parser.add_argument("--names", default="",
                        help="optimizations, A+B for two at once; all if none is given")
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    options.tally = str(pathlib.Path(options.tally).resolve())
    options.names = [n for n in options.names.split(",") if n] or names_of(options.tally)
    run.claim_work_folder()
    folder = run.WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    inputs.make_all(folder, options.scale)
    chosen = options.only.split(",")
    everything = [*programs.programs(folder, run.WORK, options.scale), SHELL]
    unknown = set(chosen) - {p.name for p in everything}
    if unknown:
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    table = [p for p in everything if p.name in chosen]
    print("| program | " + " | ".join(options.names) + " |")
    print("| --- |" + " ---: |" * len(options.names))
    complaints = []
    for program in table:
        print(row(program.name, measure(options, program, complaints)), flush=True)
    for words in complaints:
        print(words)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
