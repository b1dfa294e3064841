"""One comparison of Tally with callgrind: what tests/e2e/callgrind_*.py have in common."""
import csv
import os
import shutil
import subprocess
import sys

import callgrind
import processes

TIMEOUT_S = 300
SHOWN_MAX = 20


def make_text(path, lines):
    """Text that compresses about as English does; the same on every machine."""
    seed = 12345
    words = "the of and counter edge block exact flow loop branch call return tree weight path"
    words = words.split()
    with open(path, "w", encoding="ascii") as f:
        for number in range(lines):
            chosen = []
            for _ in range(9):
                seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
                chosen.append(words[(seed >> 16) % len(words)])
            f.write(f"{number * 7919 % 10007} {' '.join(chosen)}\n")


def tally_counts(tally, command, folder, stdin, env):
    file = os.path.join(folder, "run.tally")
    full = [tally, "profile", "-o", file, "--"] + command
    done = processes.run(full, folder, "tally", TIMEOUT_S, stdin=stdin, env=env)
    dump = subprocess.run(
        [tally, "dump", "instructions", file, "--format=csv"], capture_output=True, check=True
    )
    return done, rows(dump.stdout.decode().splitlines())


def rows(lines):
    """Counts by (module path, link address), of a table with a row for each instruction."""
    counts = {}
    for r in csv.DictReader(lines):
        key = (os.path.realpath(r["module"]), int(r["address"], 16))
        counts[key] = counts.get(key, 0) + int(r["count"])
    return counts


def differences(ours, theirs, modules):
    """Per module: how many addresses agree, which do not, and which are `rep` and left out."""
    problems = []
    for module in modules:
        left_out = callgrind.rep_prefixed(module)
        addresses = {a for m, a in ours if m == module} | {a for m, a in theirs if m == module}
        different = [
            a
            for a in sorted(addresses - left_out)
            if ours.get((module, a), 0) != theirs.get((module, a), 0)
        ]
        total = sum(theirs.get((module, a), 0) for a in addresses - left_out)
        print(
            f"{module}: {len(addresses)} instructions, {total} executions, "
            f"{len(different)} differ, {len(addresses & left_out)} rep-prefixed left out"
        )
        if not addresses:
            problems.append(f"{module}: never executed; is the path right?")
        for a in different[:SHOWN_MAX]:
            problems.append(
                f"{module}+{a:#x}: tally {ours.get((module, a), 0)}, "
                f"callgrind {theirs.get((module, a), 0)}"
            )
    return problems


def check(command, libraries=(), stdin=None, env=None, counter=tally_counts):
    """Exits with 1 when counts differ.  `libraries` are compared beside the program.  Tally counts
    three times: by rules of thumb, by what that run has left, and with its procedures from there.
    """
    if not os.path.exists("/usr/bin/valgrind") or not os.path.exists(command[0]):
        print(f"valgrind or {command[0]} is not installed")
        sys.exit(77)
    folder = os.environ["WORK"]
    # A program may copy its environment: give it the one that valgrind makes.
    shared = dict(callgrind.environment(folder), **(env or {}))
    base = dict(processes.ENVIRONMENT, **(env or {}))
    there, counts = callgrind.run(command, folder, stdin, base)
    problems = []
    modules = [os.path.realpath(m) for m in (command[0], *libraries)]
    for _ in range(3 if counter is tally_counts else 1):
        here, ours = counter(os.environ["TALLY"], command, folder, stdin, shared)
        if (here.end(), here.stdout) != (there.end(), there.stdout):
            problems.append(f"the two runs differ: {here.end()} and {there.end()}")
        problems += differences(ours, counts.counts, modules)
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


def need(name):
    """The full path of a program, or the test is skipped."""
    path = shutil.which(name)
    if not path:
        print(f"{name} is not installed")
        sys.exit(77)
    return path
