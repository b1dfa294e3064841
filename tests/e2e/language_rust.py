#!/usr/bin/env python3
"""Rust: panics that are caught, threads."""
from languages import build, check, finish, need, path, source

need("/usr/bin/rustc")
build("/usr/bin/rustc", "-C", "opt-level=0", "-o", path("panics"), source("panics.rs"))
check("rust", [path("panics")], fib=(path("panics"), "fib"))
finish()
