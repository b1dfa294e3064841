#!/usr/bin/env python3
"""Programs made at random, in first runs and later ones, with what optimizes and without: the same
output as natively, and each instruction as often as callgrind says.  (tools/differential.py makes
more of them, for as long as asked.)"""
import os
import shutil
import sys

import differential

# With what only some have: seeds that found a fault once, threads, calls that are left, signals,
# return addresses that are changed early; of `wild`, returns by a jump, and jumps by a return.
SEEDS = {"flow": (12, 14, 21, 22, 30, 32, 40, 49, 56), "wild": (617, 633, 640, 643, 651, 662),
         "csmith": (1, 2)}

for needed in ("/usr/bin/valgrind", "/usr/bin/csmith"):
    if not os.path.exists(needed):
        print(f"{needed} is not installed")
        sys.exit(77)
failed = False
for kind, seeds in SEEDS.items():
    for seed in seeds:
        folder = os.path.join(os.environ["WORK"], f"{kind}-{seed}")
        problems, instructions = differential.check(os.environ["TALLY"], kind, seed, folder)
        print(f"{kind} {seed}: {instructions} instructions, {problems}")
        if problems:
            failed = True
        else:
            shutil.rmtree(folder)
            failed |= problems is None  # it must not be one of those that run for long
sys.exit(1 if failed else 0)
