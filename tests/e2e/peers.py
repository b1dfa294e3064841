#!/usr/bin/env python3
"""bench/peers.py and bench/tables.py, with a small program of ours in place of Debian's sources.

One build is made to fail, one to print something else: their cells say so, and the others' are
ratios.  The memory in tables.py's table is compared with what the profile itself says.
"""
import argparse
import os
import pathlib
import re
import shutil
import sqlite3
import sys

from refusal import TALLY, WORK, complain, finish

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import findings  # noqa: E402
import peer_builds  # noqa: E402
import peers  # noqa: E402
import programs  # noqa: E402
import run  # noqa: E402
import tables  # noqa: E402

NEEDED = ("gcc", "clang", "llvm-bolt-16", "valgrind", "qemu-x86_64")
NAME = "compress"
# Called as `compress -c FILE`.
SOURCE = r"""
#include <stdio.h>
int main(int argc, char** argv) {
  FILE* file = fopen(argv[2], "rb");
  unsigned long sum = argc;
  for (int i = 0; i < 20; i++) {
    for (int c; (c = getc(file)) != EOF;) sum = sum * (c & 3 ? 31 : 7) + c;
    rewind(file);
  }
  printf("%lx\n", sum + WRONG);
  return 0;
}
"""
BUILD = ('case "$PEER_FLAGS" in *atomic*) echo no room here; exit 1;; esac',
         'case "$PEER_CC $PEER_FLAGS" in clang*profile*) wrong=1;; *) wrong=0;; esac',
         "$CC -DWRONG=$wrong peer.c -o peer")


def stand_in():
    """The bench's folders below ours, and one recipe whose source is at hand."""
    run.WORK = pathlib.Path(WORK)
    peers.WORK = peer_builds.WORK = run.WORK / "peers"
    source = run.WORK / "sources" / "small"
    source.mkdir(parents=True)
    (source / "peer.c").write_text(SOURCE)
    findings.fetch = lambda _: source.parent
    peer_builds.RECIPES = {NAME: peer_builds.Recipe("small", "peer", BUILD)}
    peer_builds.PROGRAMS = {NAME: NAME}


def compare_peers():
    options = argparse.Namespace(tally=TALLY, programs=[NAME], runs=2, scale=0.01,
                                 slow_scale=0.01, slow_runs=1)
    options.builds = peer_builds.build_all([NAME])
    peer_builds.plugin()
    fast, slow = (peers.Comparison(options, ways, 0.01) for ways in (peers.FAST, peers.SLOW))
    fast.rounds(options.runs)
    slow.rounds(options.slow_runs)
    for words in fast.complaints + slow.complaints:
        complain(words)
    text = peers.document(options, fast, slow)
    print(text)
    return text


def cells(text, first_words):
    """The cells of each table's row that begins so."""
    return [[cell.strip() for cell in line.strip("|").split("|")[1:]] for line in text.splitlines()
            if line.startswith(f"| {first_words} |")]


def judge_peers(text):
    rows = cells(text, NAME)
    if [len(row) for row in rows] != [8, 5]:
        complain(f"other columns than expected: {rows}")
        return
    expected = ("gcc s", "tally", "again", "gcc", "not built", "BOLT", "clang s", "wrong output")
    for cell, what in zip(rows[0], expected):
        if what in ("not built", "wrong output"):
            if cell != what:
                complain(f"a cell says {cell!r} instead of {what!r}")
        elif not re.fullmatch(r"\d+\.\d\d( \(\d+\.\d\d-\d+\.\d\d\))?", cell):
            complain(f"{what}: no number: {cell!r}")
    if not all(re.fullmatch(r"\d+\.\d\d", cell) for cell in rows[1]):
        complain(f"the slow ones: {rows[1]}")
    if "no room here" not in text:
        complain("why a build failed is not said")


def judge_tables():
    """One program of the benchmark through tables.py, against the profile."""
    options = argparse.Namespace(tally=TALLY, runs=1, scale=0.01, busy=False,
                                 placements=list(tables.WAYS), callgrind=False)
    folder = run.WORK / "inputs-0.01"
    table = [p for p in programs.programs(folder, run.WORK, 0.01) if p.name == "gzip"]
    bench = run.Bench(options)
    bench.run_all(table)
    for words in bench.complaints:
        complain(words)
    text = tables.generated(bench, table, options)
    print(text)
    cost, increments, memory = cells(text, "gzip")
    if len(cost) != 9 or any(not re.fullmatch(r"-?[\d.]+", cell) for cell in cost):
        complain(f"Table 1: {cost}")
    profile = sqlite3.connect(bench.profile_path(table[0], "edges"))
    facts = dict(profile.execute("SELECT name, value FROM facts"))
    blocks, instructions = profile.execute(
        "SELECT sum(count), sum(count * length(instruction_sizes)) FROM blocks").fetchone()
    if increments[1] != f"{int(facts['counter_increments']):,}":
        complain(f"Table 2: quick {increments[1]}, in the profile {facts['counter_increments']}")
    if increments[5] != f"{instructions / blocks:.1f}":
        complain(f"Table 2: block size {increments[5]} of {instructions} / {blocks}")
    # Each byte by itself.
    code = set()
    for module, address, size in profile.execute(
            "SELECT p.module, b.address, b.size_bytes FROM blocks b JOIN procedures p "
            "ON p.id = b.procedure WHERE b.count > 0"):
        code.update((module, address + i) for i in range(size))
    extra = sum(int(facts[name]) for name in tables.MEMORY)
    if memory[4] != f"{extra / len(code):.1f}":
        complain(f"memory: {memory[4]} times, but {extra} of {len(code)} bytes")


def main():
    if any(not shutil.which(tool) for tool in NEEDED):
        print("needs", *NEEDED)
        return 77
    os.environ.pop("TALLY_CACHE", None)
    stand_in()
    judge_peers(compare_peers())
    judge_tables()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
