#!/usr/bin/env python3
"""Ball and Larus' Tables 1 and 2 with the programs of the benchmark, and what Tally's memory is.

Each program runs, round by round: natively, translated without a counter (--placement=none), and
with counters in the three placements (run.py has the rounds and the checks).  Table 1 is CPU time
and wants an idle machine.  Table 2, numbers of counter increments, and the memory are of the first
round and do not depend on what else runs, as procedures are not translated again in mid-run.
docs/tables.md keeps its words; what stands there below the mark is replaced.

usage: tables.py --tally=PATH [--runs=1] [--only=NAME,...] [--scale=1] [--out=docs/tables.md]
"""

import argparse
import contextlib
import datetime
import math
import os
import pathlib
import shutil
import sqlite3
import statistics
import sys
import tempfile

import inputs
import programs
import run

DOCUMENT = run.HERE.parent / "docs" / "tables.md"
MARK = "<!-- Below this line: written by bench/tables.py. -->"
WAYS = ("none", "blocks", "edges", "feedback")
MEMORY = ("memory_tables_bytes", "memory_code_bytes", "memory_threads_bytes")
GOAL = 4  # extra memory of the target, in times the bytes of code that it executed


def executed_bytes(database):
    """Bytes of code that were executed, each once however many blocks it belongs to."""
    total, reached, module = 0, 0, None
    for where, begin, size in database.execute(
            "SELECT p.module, b.address, b.size_bytes FROM blocks b JOIN procedures p "
            "ON p.id = b.procedure WHERE b.count != 0 AND b.source != 2 ORDER BY 1, 2"):
        if where != module:
            module, reached = where, begin
        total += max(0, begin + size - max(reached, begin))
        reached = max(reached, begin + size)
    return total


def executed(path):
    """Of a profile: instructions and blocks executed, and the bytes of code they lie in."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        instructions, blocks = database.execute(
            "SELECT total(1.0 * count * length(instruction_sizes)), total(count) FROM blocks "
            "WHERE source != 2").fetchone()
        return instructions, blocks, executed_bytes(database)


def mean(values):
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


def per_cent(ratio):
    return "-" if ratio is None else f"{100 * (ratio - 1):.0f}"


def cost_table(bench, table):
    """Table 1: seconds, and what profiling adds to the native time."""
    titles = ("no counters", "Slow", "Quick", "Feedback")
    lines = [run.row("program", "native s", *(t for title in titles for t in (f"{title} s", "%"))),
             run.row("---", *["---:"] * (1 + 2 * len(titles)))]
    for program in table:
        cells = [cell for way in WAYS for cell in (run.number(bench.cpu(program.name, way)),
                                                   per_cent(bench.ratio(program.name, way)))]
        lines.append(run.row(program.name, run.number(bench.cpu(program.name, "native")), *cells))
    means = [mean([r for p in table if (r := bench.ratio(p.name, way))]) for way in WAYS]
    return [*lines, run.row("**geometric mean**", "",
                            *(c for m in means for c in ("", f"**{per_cent(m)}**")))]


def increments(bench, name, way):
    value = bench.facts.get((name, way), {}).get("counter_increments")
    return int(value) if value is not None else None


def increments_table(bench, table):
    """Table 2: how often counters were incremented, and the dynamic size of a block."""
    lines = [run.row("program", "Slow", "Quick", "Slow/Quick", "Feedback", "Slow/Feedback",
                     "block size"), run.row("---", *["---:"] * 6)]
    gained = {"edges": [], "feedback": []}
    for program in table:
        slow, quick, feedback = (increments(bench, program.name, w) for w in run.NAMES)
        if not slow or not quick or not feedback:
            lines.append(run.row(program.name, *["-"] * 6))
            continue
        instructions, blocks, _ = executed(bench.profile_path(program, "edges"))
        gained["edges"].append(slow / quick)
        gained["feedback"].append(slow / feedback)
        lines.append(run.row(program.name, f"{slow:,}", f"{quick:,}", f"{slow / quick:.1f}",
                             f"{feedback:,}", f"{slow / feedback:.1f}",
                             f"{instructions / blocks:.1f}"))
    edges, feedback = (run.number(mean(gained[w]), "{:.1f}") for w in ("edges", "feedback"))
    return [*lines, run.row("**geometric mean**", "", "", f"**{edges}**", "", f"**{feedback}**",
                            "")]


def memory_table(bench, table):
    """Shared memory that was touched against code that was executed; the monitor's peak."""
    lines = [run.row("program", "executed KB", "code cache KB", "tables KB", "counters KB",
                     "extra / executed", "monitor MB"), run.row("---", *["---:"] * 6)]
    missed, judged = [], 0
    for program in table:
        facts = bench.facts.get((program.name, "edges"), {})
        if not all(name in facts for name in MEMORY):
            lines.append(run.row(program.name, *["-"] * 6))
            continue
        code_bytes = executed(bench.profile_path(program, "edges"))[2]
        tables, caches, threads = (int(facts[name]) for name in MEMORY)
        times = (tables + caches + threads) / code_bytes
        judged += 1
        if times > GOAL:
            missed.append(program.name)
        peak_kb = max(r.peak_kb for r in bench.cells[program.name, "edges"])
        lines.append(run.row(program.name, *(f"{n / 1024:,.0f}" for n in (
            code_bytes, caches, tables, threads)), f"{times:.1f}",
            f"{peak_kb / run.KB_PER_MB:.0f}"))
    words = f"met by all {judged}" if not missed else f"missed by {len(missed)} of {judged}"
    if judged == 0:
        words = "not judged: no profile says what memory was touched"
    if 0 < len(missed) < judged:
        words += ": " + ", ".join(missed)
    return [*lines, "", f"The goal of at most {GOAL} times is {words}."]


def generated(bench, table, options):
    rounds = f"medians of the ratios of {bench.rounds} rounds" if bench.rounds > 1 else "one round"
    busy = ", **on a busy machine: take Table 1 for a rough idea**" if options.busy else ""
    lines = [
        MARK, "",
        f"Made on {datetime.date.today()}: {run.machine()}; {rounds}, scale "
        f"{options.scale:g}{busy}.", "",
        "## Table 1. Cost of profiling", "",
        "CPU time, Tally's monitor included; % is what is added to the native time. *No counters*: "
        "translated, nothing counted.", "", *cost_table(bench, table), "",
        "## Table 2. Reduction in counter increments", "", *increments_table(bench, table), "",
        "## Memory", "",
        "Of *Quick*: code executed; pages of the shared memory that exist at the end; the "
        "monitor's highest resident size.", "", *memory_table(bench, table), ""]
    if bench.complaints:
        lines += ["## Not as it should be", "", *(f"- {words}" for words in bench.complaints), ""]
    return "\n".join(lines)


def write(path, text):
    """Replaces what stands below the mark."""
    words = path.read_text().split(MARK)[0] if path.exists() else "# Tables\n\n"
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(words + text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)
    print("written:", path)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", default="", help="names of programs, with commas")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--busy", action="store_true", help="say that the machine was not idle")
    parser.add_argument("--out", type=pathlib.Path, default=None,
                        help="default: docs/tables.md for a full run, else only the terminal")
    options = parser.parse_args()
    options.tally = str(pathlib.Path(options.tally).resolve())
    options.placements, options.callgrind = list(WAYS), False
    return options


def main():
    options = parse_options()
    run.claim_work_folder()
    folder = run.WORK / ("inputs" if options.scale == 1 else f"inputs-{options.scale:g}")
    inputs.make_all(folder, options.scale)
    table = programs.programs(folder, run.WORK, options.scale)
    wanted = options.only.split(",") if options.only else [p.name for p in table]
    table = [p for p in table if p.name in wanted]
    missing = [p.name for p in table if not shutil.which(p.argv[0])]
    if missing or not table:
        print("not installed or not known:", ", ".join(missing) or options.only)
        return 1
    # Placed once, by rules of thumb or by a profile, as in the paper; and so the same every time.
    bench = run.Bench(options, switched_off=("renewal",))
    bench.run_all(table)
    text = generated(bench, table, options)
    print("\n" + text)
    out = options.out
    if out is None and not options.only and options.scale == 1:
        out = DOCUMENT
    if out:
        write(out, text)
    return 1 if bench.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
