#!/usr/bin/env python3
"""A script is profiled as the kernel runs it: the interpreter is the main program."""
import os

import refusal
from refusal import accepted, finish, path, profile

with open(path("script"), "w", encoding="ascii") as f:
    f.write('#!/bin/sh -e\necho "script $0 $1"\nexit 7\n')
os.chmod(path("script"), 0o755)
done = accepted(profile("script.tally", path("script"), "argument"), "script", status=7)
if done.stdout.decode() != f"script {path('script')} argument\n":
    refusal.complain(f"stdout is {done.stdout!r}")
dump = accepted(["dump", "instructions", path("script.tally"), "--format=csv"], "dump")
modules = {line.split(b",")[0].decode() for line in dump.stdout.splitlines()[1:]}
if not any(os.path.basename(os.path.realpath(m)) in ("dash", "bash", "sh") for m in modules):
    refusal.complain(f"no shell among the modules {sorted(modules)}")

# Found through PATH, and named by a relative path.
env = {"PATH": refusal.WORK + ":/usr/bin:/bin", "LC_ALL": "C"}
accepted(profile("two.tally", "script", "x"), "script through PATH", status=7, env=env)
accepted(profile("three.tally", "./script", "x"), "script by relative path", status=7)
finish()
