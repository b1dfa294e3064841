#!/usr/bin/env python3
"""Where the time of a run under Tally goes: first what translating alone costs, then the counters.

For each program, round by round: natively, translated with no counter at all (--placement=none),
with counters outside a maximum spanning tree (edges), with measured weights (feedback) and in every
block.  CPU time is user + system time of all that the command started, so the monitor's share is in
it.  A ratio is the median of the rounds' own ratios.  The monitor's own part is split by the phases
that it measures itself, on the wall clock (facts `us_...`, as parts of the native time); what is
left of a ratio is the steady state, waiting, and writing the profile.  A run whose output or status
is not the native one's, and a profile that is not balanced, is listed; the exit status is then 1.

usage: close.py --tally=PATH [--runs=5] [--only=NAME,...] [--scale=1] [--no-opt=NAME,...]
"""

import argparse
import pathlib
import shutil
import statistics
import sys

import inputs
import programs
import run

WAYS = ("none", "edges", run.AGAIN, "feedback", "blocks")
# The monitor's phases (cache/phases.h) by what a user would call them.
PARTS = {
    "starting": ("us_begin", "us_region", "us_modules"),
    "misses": ("us_discover", "us_place", "us_emit", "us_link", "us_renew", "us_serve"),
    "calls, stops": ("us_system_calls", "us_stops"),
    "solving": ("us_solve",),
}


def measure(options, program, complaints):
    """Ratios of each way, and the facts of the last run with counters on edges."""
    profile = {way: run.WORK / f"close.{way}.tally" for way in WAYS}
    ratios = {way: [] for way in WAYS}
    natives = []
    for _ in range(options.runs):
        native = run.run(program.argv, program)
        natives.append(native.cpu_s)
        for way in options.ways:
            how = {"feedback": f"feedback={profile['edges']}", run.AGAIN: "edges"}.get(way, way)
            cache = run.WORK / "recall" if way == run.AGAIN else ""
            switched_off = [f"--no-opt={options.no_opt}"] if options.no_opt else []
            line = [options.tally, "profile", "-o", str(profile[way]), f"--placement={how}",
                    *switched_off, "--", *program.argv]
            if way == run.AGAIN and not ratios[way]:
                for _ in range(run.TEACHING):
                    run.run(line, program, cache=cache)
            done = run.run(line, program, cache=cache)
            if (done.status, done.digest) != (native.status, native.digest):
                complaints.append(f"{program.name}, {way}: status or output differ from native")
            ratios[way].append(done.cpu_s / native.cpu_s)
    facts = run.profile_facts(options.tally, profile["edges"])
    if not facts["balanced"]:
        complaints.append(f"{program.name}: not balanced")
    return statistics.median(natives), ratios, facts


def row(name, native, ratios, facts, ways):
    cells = [name, f"{native:.2f}"]
    for way in ways:
        low, high = min(ratios[way]), max(ratios[way])
        cells.append(f"{statistics.median(ratios[way]):.2f} ({low:.2f}-{high:.2f})")
    for phases in PARTS.values():
        cells.append(f"{sum(int(facts[phase]) for phase in phases) / 1e6 / native:.2f}")
    per_thousand = 1000 * int(facts["counter_increments"]) / int(facts["instructions"])
    cells += [f"{per_thousand:.0f}", f"{int(facts['misses']):,}", f"{int(facts['misses_link']):,}",
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
    run.claim_work_folder()
    shutil.rmtree(run.WORK / "recall", ignore_errors=True)
    folder = run.WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    inputs.make_all(folder, options.scale)
    table = programs.programs(folder, run.WORK, options.scale)
    if options.only:
        table = [p for p in table if p.name in options.only.split(",")]
    names = ["program", "native s", *options.ways, *PARTS, "increments per 1000",
             "all misses", "of links", "indirect", "cache MB"]
    print("| " + " | ".join(names) + " |")
    print("| --- |" + " ---: |" * (len(names) - 1))
    medians = {way: [] for way in options.ways}
    complaints = []
    for program in table:
        native, ratios, facts = measure(options, program, complaints)
        print(row(program.name, native, ratios, facts, options.ways), flush=True)
        for way in options.ways:
            medians[way].append(statistics.median(ratios[way]))
    means = [f"**{statistics.geometric_mean(medians[way]):.2f}**" for way in options.ways]
    blank = ["" for _ in names[2 + len(means):]]
    print("| " + " | ".join(["**geometric mean**", "", *means, *blank]) + " |")
    for words in complaints:
        print(words)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
