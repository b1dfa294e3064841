#!/usr/bin/env python3
"""Programs that loop, call and return are killed at one instruction of the code cache after the
other: the profile holds what was executed, and nothing else (tests/oracle/ended.py)."""
from ended import check

check({
    "asm_loops_few": ("gcc", "O0", "pie", "nolibc"),
    "asm_sealed": ("gcc", "O0", "nopie", "nolibc"),
    "asm_return_out": ("gcc", "O0", "nopie", "nolibc"),
    "asm_return_pops": ("gcc", "O0", "pie", "nolibc"),
    "asm_return_pops_large": ("gcc", "O0", "nopie", "nolibc"),
    "tail_call": ("gcc", "O2", "pie", "nolibc"),
})
