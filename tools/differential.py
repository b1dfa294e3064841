#!/usr/bin/env python3
"""Runs random programs under Tally, in first runs and later ones, with what optimizes and without,
and compares each count with callgrind's, for as long as asked.

A failure keeps the program's folder and prints the command that makes it again.

usage: differential.py --tally=PATH [--kinds=flow,wild,csmith] [--seed=N] [--count=N | --minutes=N]
                       [--jobs=N] [--work=FOLDER]
"""
import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "oracle"))

import differential  # noqa: E402  (found by the line above)


def one(tally, kind, seed, work):
    folder = work / f"{kind}-{seed}"
    try:
        problems, total = differential.check(tally, kind, seed, folder)
    except (subprocess.SubprocessError, RuntimeError, OSError) as error:
        problems, total = [f"could not be tried: {error}"], 0
    if not problems:
        shutil.rmtree(folder, ignore_errors=True)
    return kind, seed, problems, total, folder


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--kinds", default="flow,wild,csmith")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--work", default="")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    tally = os.path.abspath(options.tally)
    work = pathlib.Path(options.work or tempfile.mkdtemp(prefix="tally-differential-"))
    end = time.monotonic() + 60 * options.minutes
    programs = left_out = instructions = failed = 0
    seed = options.seed
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        more = True
        while more:
            batch = [(kind, seed + i) for i in range(options.jobs) for kind in kinds]
            seed += options.jobs
            for kind, number, problems, total, folder in pool.map(
                    lambda each: one(tally, *each, work), batch):
                programs += problems is not None
                left_out += problems is None
                instructions += total
                if problems:
                    failed += 1
                    print(f"FAILED {kind} {number}, kept in {folder}; again: {sys.argv[0]} "
                          f"--tally={tally} --kinds={kind} --seed={number} --count=1")
                    print("\n".join("  " + problem for problem in problems), flush=True)
            more = (seed < options.seed + options.count if options.count
                    else time.monotonic() < end)
    print(f"{programs} programs, {instructions} instructions compared, {failed} failed, "
          f"{left_out} left out (they run for long), seeds {options.seed} to {seed - 1}")
    sys.exit(1 if failed or not programs else 0)


if __name__ == "__main__":
    main()
