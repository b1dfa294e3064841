#!/usr/bin/env python3
"""Where the time of a program under Tally goes: samples of perf against the code cache.

    bench/where.py --tally build/release/tally -- PROGRAM ARGS...
    bench/where.py --tally build/release/tally --bench=all
    bench/where.py --tally build/release/tally --bench="lua trees" --blocks=20 --code

Needs perf (no hardware counters: it samples by the clock).  Of one program: the share of each kind
of code: bodies of blocks (copied instructions and inline counters), landings behind calls,
translated returns, calls, conditional and indirect branches, stubs, and what is not in the cache at
all.  With --bench, a table of the benchmark's programs in which 1 is the native time, natively
sampled, so that a row adds up to what Tally costs.  Runs are later ones (run.py's *again*).  With
--blocks, the blocks of these programs that have the most samples more than natively
(where_blocks.py), with --code their translated instructions as well.
"""

import argparse
import bisect
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import inputs
import programs
import run
import where_blocks

ADDRESS = re.compile("[0-9a-f]{6,16}")
RATE_HZ = 2000
BLOCKS_RATE_HZ = 4000
IN_PLACE = ["setarch", "-R"]  # without address space randomization
# The columns of the table, by kinds of pieces.
COLUMNS = {
    "bodies": ("body", "conditional", "jump", "next", "other", "syscall"),
    "taken edges": ("edge_stub",),
    "calls, returns": ("call", "return", "landing"),
    "indirect": ("indirect", "pair", "dispatch", "arrival", "link"),
    "waiting": ("gateway", "cold"),
    "kernel": ("kernel or other",),
    "monitor": ("monitor",),
}


def record(data, argv, environment, stdin=None, rate_hz=RATE_HZ):
    """Runs argv under perf; its output is thrown away."""
    with open(stdin or os.devnull, "rb") as given:
        subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", str(rate_hz), "-o", data,
                        *argv], env=environment, stdin=given, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True)


def samples(data, fields="comm,ip,dso"):
    return subprocess.run(["perf", "script", "-i", data, "-F", fields], capture_output=True,
                          text=True, check=True).stdout.splitlines()


def address_of(line):
    address = next((f for f in line.split()[1:] if ADDRESS.fullmatch(f)), None)
    return None if address is None else int(address, 16)


def sort_samples(lines, code_map, monitor):
    """Counts samples by kind of code, and by piece of the code cache; `monitor`: Tally's name."""
    pieces = sorted((int(b, 16), int(e, 16), kind, original) for b, e, kind, original in
                    (line.split() for line in code_map.read_text().splitlines()))
    begins = [piece[0] for piece in pieces]
    kinds, hot = collections.Counter(), collections.Counter()
    for line in lines:
        fields = line.split()
        ip = address_of(line)
        if ip is None:
            continue
        if "memfd:tally" not in line:
            kinds["monitor" if fields[0] == monitor else "kernel or other"] += 1
            continue
        at = bisect.bisect_right(begins, ip) - 1
        if at >= 0 and pieces[at][0] <= ip < pieces[at][1]:
            kinds[pieces[at][2]] += 1
            hot[pieces[at]] += 1
        else:
            kinds["gateway"] += 1
    return kinds, hot


def tally_argv(options, folder, command):
    return [options.tally, "profile", "-o", str(folder / "out.tally"),
            f"--placement={options.placement}", "--", *command]


def process_name(options):
    """As perf has it."""
    return pathlib.Path(options.tally).name[:15]


def sample_tally(options, folder, command, environment, stdin=None):
    code_map, data = folder / "map", folder / "perf.data"
    record(data, tally_argv(options, folder, command),
           dict(environment, TALLY_CODE_MAP=str(code_map)), stdin)
    return sort_samples(samples(data), code_map, process_name(options))


def one_program(options, folder):
    kinds, hot = sample_tally(options, folder, options.command, os.environ)
    total = sum(kinds.values()) or 1
    for kind, count in kinds.most_common():
        print(f"{kind:20} {count:8} {100 * count / total:5.1f}%")
    for piece, count in hot.most_common(options.top):
        print(f"{count:8} {piece[0]:#x} {piece[2]} of {piece[3]}")


def bench_row(options, folder, program):
    environment = dict(os.environ, TALLY_CACHE=str(folder / "recall"), **program.environment)
    data = folder / "native.data"
    record(data, program.argv, environment, program.stdin)
    native = len(samples(data, "ip"))
    for _ in range(run.TEACHING):  # the last one finds what those before have left
        run.run(tally_argv(options, folder, program.argv), program, cache=folder / "recall")
    kinds, _ = sample_tally(options, folder, program.argv, environment, program.stdin)
    # To write the map down takes the monitor time of its own: that is taken from another run.
    record(data, tally_argv(options, folder, program.argv), environment, program.stdin)
    name = process_name(options)
    kinds["monitor"] = sum(line.split()[:1] == [name] for line in samples(data))
    cells = [sum(kinds[kind] for kind in column) / native for column in COLUMNS.values()]
    return run.row(program.name, f"{native / RATE_HZ:.2f}", *(f"{c:.2f}" for c in cells),
                   f"{sum(kinds.values()) / native:.2f}")


def bench_blocks(options, folder, program):
    """Prints which blocks of a program are slower in a later run than natively."""
    environment = dict(os.environ, TALLY_CACHE=str(folder / "recall"), **program.environment)
    code_map, data = folder / "map", folder / "blocks.data"
    line = [*IN_PLACE, *tally_argv(options, folder, program.argv)]
    for _ in range(run.TEACHING):
        with open(program.stdin or os.devnull, "rb") as given:
            subprocess.run(line, env=environment, stdin=given, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, check=True)
    record(data, [*IN_PLACE, *program.argv], environment, program.stdin, BLOCKS_RATE_HZ)
    native = [address_of(text) for text in samples(data)]
    dump = where_blocks.CodeDump(len(native) / BLOCKS_RATE_HZ / 2) if options.code else None
    record(data, line, dict(environment, TALLY_CODE_MAP=str(code_map)), program.stdin,
           BLOCKS_RATE_HZ)
    blocks = where_blocks.Blocks(where_blocks.read_pieces(code_map))
    for address in native:
        if address is not None:
            blocks.add_native(address)
    for text in samples(data):
        if "memfd:tally" in text:
            blocks.add(address_of(text))
    print(f"## {program.name}")
    where_blocks.report(blocks, len(native), options.blocks, dump)


def bench_table(options, folder):
    run.claim_work_folder()
    inputs.make_all(run.WORK / "inputs", 1.0)
    wanted = options.bench.split(",")
    if options.blocks == 0:
        print(run.row("program", "native s", *COLUMNS, "all"))
        print(run.row("---", *["---:"] * (len(COLUMNS) + 2)))
    for program in programs.programs(run.WORK / "inputs", run.WORK):
        if wanted == ["all"] or program.name in wanted:
            if options.blocks:
                bench_blocks(options, folder, program)
            else:
                print(bench_row(options, folder, program), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--top", type=int, default=0, help="print the N hottest pieces as well")
    parser.add_argument("--placement", default="edges")
    parser.add_argument("--bench", default="", help="names of the benchmark's programs, or all")
    parser.add_argument("--blocks", type=int, default=0,
                        help="with --bench: the N blocks with the most samples more than natively")
    parser.add_argument("--code", action="store_true", help="with --blocks: their instructions")
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if bool(options.command) == bool(options.bench):
        parser.error("either a command or --bench")
    if (options.blocks and not options.bench) or (options.code and not options.blocks):
        parser.error("--blocks needs --bench, and --code needs --blocks")
    options.tally = str(pathlib.Path(options.tally).resolve())
    with tempfile.TemporaryDirectory() as folder:
        (bench_table if options.bench else one_program)(options, pathlib.Path(folder))


if __name__ == "__main__":
    sys.exit(main())
