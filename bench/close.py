#!/usr/bin/env python3
"""Where the time of a run under Tally goes: first what translating alone costs, then the counters.

For each program, round by round: natively, translated with no counter at all (--placement=none),
with counters outside a maximum spanning tree (edges), with measured weights (feedback) and in every
block.  CPU time is user + system time of all that the command started, so the monitor's share is in
it.  A ratio is the median of the rounds' own ratios.  The monitor's own part is split by the phases
that it measures itself (facts `us_...`): answering misses, and solving at the end; what is left of
a ratio is the steady state and waiting.

usage: close.py --tally=PATH [--runs=5] [--only=NAME,...] [--scale=1] [--no-opt=NAME,...]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import inputs
import programs
import run

WAYS = ("none", "edges", "feedback", "blocks")
SOLVING = {"us_solve"}


def facts_of(tally, profile):
    """All facts of the first run of a profile, by name."""
    text = subprocess.run([tally, "report", "--format=json", profile], capture_output=True,
                          text=True, check=True).stdout
    found = {}

    def walk(value):
        if isinstance(value, dict):
            for key, inner in value.items():
                if not isinstance(inner, (dict, list)):
                    found.setdefault(key, inner)
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(json.loads(text))
    return found


def measure(options, program):
    """Ratios of each way, and the facts of the last run with counters on edges."""
    folder = run.WORK
    profile = {way: folder / f"close.{way}.tally" for way in WAYS}
    ratios = {way: [] for way in WAYS}
    natives = []
    for _ in range(options.runs):
        native = run.run(program.argv, program).cpu_s
        natives.append(native)
        for way in options.ways:
            how = f"feedback={profile['edges']}" if way == "feedback" else way
            switched_off = [f"--no-opt={options.no_opt}"] if options.no_opt else []
            line = [options.tally, "profile", "-o", str(profile[way]), f"--placement={how}",
                    *switched_off, "--", *program.argv]
            ratios[way].append(run.run(line, program).cpu_s / native)
    return statistics.median(natives), ratios, facts_of(options.tally, profile["edges"])


def row(name, native, ratios, facts, ways):
    phases = {key: int(value) for key, value in facts.items() if key.startswith("us_")}
    solving = sum(value for key, value in phases.items() if key in SOLVING) / 1e6
    serving = sum(value for key, value in phases.items() if key not in SOLVING) / 1e6
    executed = max(1, int(facts.get("instructions", 0)))
    cells = [name, f"{native:.2f}"]
    for way in ways:
        low, high = min(ratios[way]), max(ratios[way])
        cells.append(f"{statistics.median(ratios[way]):.2f} ({low:.2f}-{high:.2f})")
    cells += [f"{serving / native:.2f}", f"{solving / native:.2f}",
              f"{1000 * int(facts.get('counter_increments', 0)) / executed:.0f}",
              f"{int(facts['misses']):,}", f"{int(facts['misses_link']):,}",
              f"{int(facts['misses_indirect']):,}", f"{int(facts['code_cache_bytes']) / 1e6:.1f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--no-opt", default="", help="optimizations to switch off")
    parser.add_argument("--ways", default=",".join(WAYS), help="of: " + ", ".join(WAYS))
    options = parser.parse_args()
    options.tally = str(pathlib.Path(options.tally).resolve())
    options.ways = [way for way in WAYS if way in options.ways.split(",")]
    if "edges" not in options.ways:
        parser.error("edges must be among the ways: its profile has the facts")
    folder = run.WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    inputs.make_all(folder, options.scale)
    table = programs.programs(folder, run.WORK, options.scale)
    if options.only:
        table = [p for p in table if p.name in options.only.split(",")]
    names = ["program", "native s", *options.ways, "misses/native", "solving/native",
             "increments per 1000", "misses", "links", "indirect", "cache MB"]
    print("| " + " | ".join(names) + " |")
    print("| --- |" + " ---: |" * (len(names) - 1))
    logs = {way: [] for way in options.ways}
    for program in table:
        native, ratios, facts = measure(options, program)
        print(row(program.name, native, ratios, facts, options.ways), flush=True)
        for way in options.ways:
            logs[way].append(statistics.median(ratios[way]))
    means = [f"**{statistics.geometric_mean(logs[way]):.2f}**" for way in options.ways]
    print("| **geometric mean** |  | " + " | ".join(means) + " |" + "  |" * 7)
    return 0


if __name__ == "__main__":
    sys.exit(main())
