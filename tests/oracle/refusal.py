"""Helpers of the tests that give Tally bad input: run it, and say what it must have done.

A refusal is one line on stderr that begins with "tally: ", the documented exit status, and nothing
left running.  (125: Tally's own failure, 126: not executable, 127: not found, 2: usage.)
"""
import os
import subprocess
import sys

import processes

TALLY = os.environ["TALLY"]
WORK = os.environ["WORK"]
_problems = []
_runs = [0]


def complain(text):
    print(text)
    _problems.append(text)


def finish():
    """To be called last: the test's exit status."""
    # Once more, as the runner shows the last lines.
    for problem in _problems[:20]:
        print(f"problem: {problem}"[:600])
    print(f"{_runs[0]} runs, {len(_problems)} problems")
    sys.exit(1 if _problems else 0)


def run(arguments, what, timeout=60, **more):
    _runs[0] += 1
    done = processes.run([TALLY, *arguments], WORK, f"run{_runs[0]}", timeout, **more)
    if done.leftover:
        complain(f"{what}: left running: {done.leftover}")
    if done.end() == "timeout":
        complain(f"{what}: did not end in {timeout} s")
    if done.signal and "signal" not in what:
        complain(f"{what}: died with {done.end()}")
    return done


def refused(arguments, what, statuses, says=(), **more):
    """Runs Tally and wants a refusal whose line contains one of `says` (any case)."""
    statuses = (statuses,) if isinstance(statuses, int) else statuses
    done = run(arguments, what, **more)
    text = done.stderr.decode(errors="replace")
    if done.status not in statuses:
        complain(f"{what}: ended with {done.end()}, expected status {statuses}: {text.strip()}")
    lines = text.splitlines()
    if len(lines) != 1 or not lines[0].startswith("tally: "):
        complain(f"{what}: expected one line 'tally: ...' on stderr, got {lines[:5]}")
    if says and not any(s.lower() in text.lower() for s in says):
        complain(f"{what}: the message names none of {says}: {text.strip()}")
    return done


def accepted(arguments, what, status=0, quiet=True, **more):
    return expect_accepted(run(arguments, what, **more), what, status, quiet)


def expect_accepted(done, what, status=0, quiet=True):
    said = done.stderr.decode(errors="replace").strip()
    if done.status != status:
        complain(f"{what}: ended with {done.end()}, expected status {status}: {said}")
    if quiet and said:
        complain(f"{what}: says on stderr: {said}")
    return done


def path(name):
    return os.path.join(WORK, name)


def profile(name, *command):
    return ["profile", "-o", path(name), "--", *command]


def compile_c(name, source, *flags):
    """A small program, compiled; its path."""
    with open(path(name + ".c"), "w", encoding="utf-8") as f:
        f.write(source)
    command = ["gcc", "-O1", "-w", path(name + ".c"), "-o", path(name), *flags]
    subprocess.run(command, check=True)
    return path(name)
