#!/usr/bin/env python3
"""The memory that Tally takes of its targets, and the monitor's own, in first and in later runs.

Each program of the benchmark runs three times under Tally with a folder of its own for what runs
leave: the first run finds nothing there, the third all that the two before have left.  Memory of
the target is what of the memory that it has for Tally exists at the end of the run (facts
`memory_..._bytes`), over the bytes of code that were executed, and for first runs, which give some
back in mid-run if they last, the most there was; other programs may run meanwhile.

usage: memory.py --tally=PATH [--only=NAME,...] [--scale=1] [--out=bench/memory.md]
"""

import argparse
import datetime
import pathlib
import shutil
import sys

import inputs
import programs
import run
import tables

RUNS = 3


def measure(tally, program, cache):
    """Of each run: bytes executed; tables, code, threads; the most; the monitor's peak in KB."""
    result = []
    profile = run.WORK / "memory.tally"
    for _ in range(RUNS):
        argv = [tally, "profile", "-o", str(profile), "--", *program.argv]
        done = run.run(argv, program, watch=True, cache=cache)
        if done.status != 0:
            sys.exit(f"{program.name} ended with {done.status}: {done.stderr.decode()[:500]}")
        facts = run.profile_facts(tally, profile)
        parts = [int(facts[name]) for name in tables.MEMORY]
        most = max(sum(parts), int(facts.get("memory_most_bytes", 0)))
        result.append((tables.executed(profile)[2], *parts, most, done.peak_kb))
    return result


SIDES = ("code cache KB", "tables KB", "counters KB", "extra / executed", "most / executed",
         "monitor MB")
MOST = SIDES.index("most / executed")  # later runs give nothing back


def cells(executed, in_tables, in_code, in_threads, most, peak_kb):
    times = (in_tables + in_code + in_threads) / executed
    return times, [*(f"{n / 1024:,.0f}" for n in (in_code, in_tables, in_threads)),
                   f"{times:.1f}", f"{most / executed:.1f}", f"{peak_kb / run.KB_PER_MB:.0f}"]


def table_of(measured):
    later_sides = [side for i, side in enumerate(SIDES) if i != MOST]
    lines = [run.row("program", "executed KB", *(f"first: {s}" for s in SIDES),
                     *(f"later: {s}" for s in later_sides)), run.row("---", *["---:"] * 12)]
    firsts, mosts, laters = [], [], []
    for name, runs in measured.items():
        first, first_cells = cells(*runs[0])
        later, later_cells = cells(*runs[-1])
        firsts.append(first)
        mosts.append(runs[0][4] / runs[0][0])
        laters.append(later)
        del later_cells[MOST]
        lines.append(run.row(name, f"{runs[0][0] / 1024:,.0f}", *first_cells, *later_cells))
    means = [f"**{tables.mean(times):.1f}**" for times in (firsts, mosts, laters)]
    lines.append(run.row("**geometric mean**", "", "", "", "", means[0], means[1], "", "", "", "",
                         means[2], ""))
    missed = [sum(t > tables.GOAL for t in times) for times in (firsts, laters)]
    words = (f"The goal of at most {tables.GOAL} times is missed by {missed[0]} of {len(firsts)} "
             f"programs in first runs, and by {missed[1]} in later ones.")
    return "\n".join([*lines, "", words, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the inputs")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    run.claim_work_folder()
    folder = run.WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    inputs.make_all(folder, options.scale)
    wanted = options.only.split(",") if options.only else None
    measured = {}
    for program in programs.programs(folder, run.WORK, options.scale):
        if wanted and program.name not in wanted:
            continue
        cache = run.WORK / "memory-cache"
        shutil.rmtree(cache, ignore_errors=True)
        print(program.name, flush=True)
        measured[program.name] = measure(str(pathlib.Path(options.tally).resolve()), program, cache)
    text = "\n".join([
        "# Memory", "",
        f"Made by `bench/memory.py` on {datetime.date.today()}: {run.machine()}.", "",
        "Code executed; pages of the memory that the target has for Tally that exist at the end, "
        "and the most there were; the monitor's highest resident size. *First*: nothing was left "
        "by an earlier run. *Later*: the third run.", "", table_of(measured)])
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
