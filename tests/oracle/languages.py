"""Programs in other languages: same output and end as natively, balanced, nothing inexact.

Where the program has a procedure whose number of calls is known in closed form, its count is
compared too: fib(20) makes 2 * fib(21) - 1 calls of itself.
"""
import json
import os
import re
import shutil
import subprocess
import sys

import processes
import refusal
from refusal import accepted, complain, finish, path, profile, run

SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "languages")
FIB_20_CALLS = 2 * 10946 - 1
ENVIRONMENT = dict(processes.ENVIRONMENT, HOME=refusal.WORK, GOFLAGS="-mod=mod", GO111MODULE="off")


def need(*tools):
    """The test is skipped where one of the tools is not there."""
    for tool in tools:
        if shutil.which(tool, path=ENVIRONMENT["PATH"]) is None:
            print(f"skipped: no {tool}")
            sys.exit(77)


def source(name):
    return os.path.join(SOURCES, name)


def build(*command):
    """Runs a compiler in the test's folder."""
    done = subprocess.run(command, cwd=refusal.WORK, env=ENVIRONMENT, capture_output=True,
                          text=True, timeout=200, check=False)
    if done.returncode != 0:
        complain(f"{' '.join(command)}: {done.stdout} {done.stderr}")
        finish()


def address_of(symbol, program):
    """Link address; compilers may add a number to names that are not global."""
    names = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    wanted = re.compile(re.escape(symbol) + r"([._]\d+)?")
    found = [line.split()[0] for line in names.splitlines() if wanted.fullmatch(line.split()[-1])]
    return int(found[0], 16) if len(found) == 1 else None


def count_at(file, program, address):
    """How often the instruction at a link address of the program was executed."""
    dump = accepted(["dump", "instructions", file, "--format=csv"], "dump").stdout.decode()
    for line in dump.splitlines()[1:]:
        module, _, where, count = line.rsplit(",", 3)
        if os.path.realpath(module) == os.path.realpath(program) and int(where, 16) == address:
            return int(count)
    return None


def check(name, command, fib=None, timeout=300, named=None):
    """Runs `command` natively and under Tally.  `fib`: (program, symbol) of the procedure that
    fib(20) calls; `named`: scope of the issue that must name what is not exact here."""
    env = ENVIRONMENT
    native = processes.run(command, refusal.WORK, name + "_native", 100, env=env)
    file = name + ".tally"
    done = run(profile(file, *command), name + " (signal)", timeout=timeout, env=env)
    if done.end() != native.end():
        complain(f"{name}: ended with {done.end()}, natively {native.end()}")
    if done.stdout != native.stdout:
        complain(f"{name}: stdout is {done.stdout[:300]!r}, natively {native.stdout[:300]!r}")
    said = [line for line in done.stderr.splitlines() if line.startswith(b"tally:")]
    if said and not named:
        complain(f"{name}: {b' '.join(said).decode(errors='replace')[:1000]}")
    report = json.loads(accepted(["report", path(file), "--format=json"], name + " report").stdout)
    if named:
        scopes = {issue["scope"] for issue in report["issues"]}
        if named not in scopes:
            complain(f"{name}: {named} is not among the issues {scopes}")
    elif not report["flow"]["balanced"]:
        complain(f"{name}: not balanced: {report['flow']['faults'][:5]}")
    if fib is None:
        return
    program, symbol = fib
    address = address_of(symbol, program)
    if address is None:
        return complain(f"{name}: no symbol {symbol} in {program}")
    count = count_at(path(file), program, address)
    if count != FIB_20_CALLS:
        complain(f"{name}: fib was entered {count} times, not {FIB_20_CALLS}")
