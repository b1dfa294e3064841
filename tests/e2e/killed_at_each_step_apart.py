#!/usr/bin/env python3
"""A program whose code and the kernel's library are too far apart for one code cache is killed at
one instruction of the code caches after the other: the profile holds what was executed, and nothing
else (tests/oracle/ended.py)."""
from ended import check

check({"vdso_calls_large": ("gcc", "O2", "nopie", "nolibc")})
