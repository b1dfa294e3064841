#!/usr/bin/env python3
"""Programs that jump are killed at one instruction of the code cache after the
other: the profile holds what was executed, and nothing else (tests/oracle/ended.py)."""
from ended import check

check({
    "asm_indirect": ("gcc", "O0", "nopie", "nolibc"),
    "asm_jump_apart": ("gcc", "O0", "nopie", "nolibc"),
    "asm_jump_by_index_few": ("gcc", "O0", "nopie", "nolibc"),
    "asm_jump_middle": ("gcc", "O0", "pie", "nolibc"),
    "asm_jump_out": ("gcc", "O0", "pie", "nolibc"),
    "asm_jump_out_large": ("gcc", "O0", "nopie", "nolibc"),
})
