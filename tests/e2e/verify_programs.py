#!/usr/bin/env python3
"""Tally's profiles of the tiny programs, verified by traps on the unmodified program: no residue.

Each program of tests/programs is profiled in the first configuration that CI runs, and the profile
is verified with the same environment and working folder, once with blocks emulated ahead and once
(for the short ones) with the processor executing everything but branches.  Programs whose counts
differ from run to run (threads, `varies`, `inexact`) may differ, but the monitor must not lose its
way in them, and the program must end as it does natively.

VERIFY_ONLY=REGEX picks programs.
"""
import json
import os
import re
import sys

import processes
import programs

TALLY = os.environ["TALLY"]
WORK = os.environ["WORK"]
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TESTS, ".work", "build")
INSTRUCTIONS_MAX = 1_500_000
INSTRUCTIONS_MAX_PLAIN = 60_000
TIMEOUT_S = 100


class Failed(Exception):
    pass


# Programs whose timers run out elsewhere when the program is slow.
TIMED = {"signal_restart"}
# A timer of 200 us strikes again before a handler is through whose branches are traps: when few
# instructions were needed in the profile, verifying would still take for ever.
STRUCK_FOR_EVER = {"jump_by_index_changed"}
# What `tally profile` answers in the kernel's place (docs/exactness.md), and the kernel otherwise.
ANSWERED = {"dispatch_denied"}
# Text that is mapped at two addresses at once is watched at one of them only (docs/verify.md):
# `tally verify` loses the thread at the other, and says so, once.
LOST_ONCE = {"text_mapped_again"}
# It copies its own text, and so the breakpoints in it (docs/verify.md), which nobody answers there.
COPIES_TRAPS = {"alike_copy"}


def run(program, command, folder, label, cwd):
    env = dict(processes.ENVIRONMENT, **program.environment())
    stdin = None
    if program.get("stdin"):
        stdin = os.path.join(folder, "stdin")
        with open(stdin, "w", encoding="utf-8") as f:
            f.write(program.get("stdin").replace("\\n", "\n"))
    return processes.run(command, folder, label, TIMEOUT_S, stdin=stdin, env=env, cwd=cwd)


def report(program, folder, file):
    done = run(program, [TALLY, "report", file, "--format=json"], folder, "report", folder)
    if done.status != 0:
        raise Failed(done.stderr.decode(errors="replace"))
    return json.loads(done.stdout)


def verify(program, command, folder, file, extra, native):
    label = "verify" + "".join(extra)
    result = os.path.join(folder, label + ".json")
    line = [TALLY, "verify", "--profile=" + file, "--format=json", "-o", result, *extra, "--"]
    done = run(program, line + command, folder, label, os.path.join(folder, "cwd"))
    said = done.stderr.decode(errors="replace")[-600:]
    if done.status not in (0, 1):
        raise Failed(f"{label}: {done.end()}: {said}")
    if done.leftover:
        raise Failed(f"{label}: left running: {done.leftover}")
    with open(result, encoding="utf-8") as f:
        verdict = json.load(f)
    expected = 1 if program.name in LOST_ONCE else 0
    if verdict["lost"] != expected or (expected and verdict["verified"]):
        raise Failed(f"{label}: lost {verdict['lost']} times: {verdict['first_lost']}")
    timed = program.name in TIMED
    if done.stdout != native.stdout and not timed:
        raise Failed(f"{label}: the program's output differs from native")
    may_differ = (
        timed or program.get("varies") or program.get("inexact")
        or "-pthread" in program.get("flags")
    )
    if program.name in ANSWERED or program.name in LOST_ONCE:
        may_differ = True
    if not verdict["verified"] and not may_differ:
        shown = [json.dumps(f) for f in verdict["findings"][:6]]
        raise Failed("\n    ".join([f"{label}: {len(verdict['findings'])} findings"] + shown))
    return verdict


def one(program):
    config = program.ci_configs()[0]
    if program.name in STRUCK_FOR_EVER:
        return "skipped: its timer is faster than traps", None
    if program.name in COPIES_TRAPS:
        return "skipped: it copies the breakpoints with its text", None
    if program.missing():
        return "skipped: processor lacks " + " ".join(program.missing()), None
    executable = programs.build(program, config, BUILD)
    folder = os.path.join(WORK, program.name)
    os.makedirs(os.path.join(folder, "cwd"), exist_ok=True)
    command = [executable] + program.arguments()
    native = run(program, command, folder, "native", os.path.join(folder, "cwd"))
    file = os.path.join(folder, "p.tally")
    line = [TALLY, "profile", "-o", file, "--"] + command
    run(program, line, folder, "profile", os.path.join(folder, "cwd"))
    if not os.path.exists(file):
        return "skipped: refused by `tally profile`", None
    executed = report(program, folder, file)["totals"]["instructions"]
    if executed > INSTRUCTIONS_MAX:
        return f"skipped: {executed} instructions are too many here", None
    verdict = verify(program, command, folder, file, [], native)
    if executed <= INSTRUCTIONS_MAX_PLAIN:
        verify(program, command, folder, file, ["--no-ahead"], native)
    return "verified" if verdict["verified"] else "differs from run to run", verdict


def main():
    os.makedirs(BUILD, exist_ok=True)
    failed = 0
    failures = []
    totals = {}
    blocks = stops = 0
    for program in programs.find(os.path.join(TESTS, "programs")):
        if not re.search(os.environ.get("VERIFY_ONLY", ""), program.name):
            continue
        try:
            said, verdict = one(program)
        except (Failed, programs.BuildError) as e:
            failed += 1
            said, verdict = "FAILED: " + str(e), None
        if verdict:
            blocks += verdict["cost"]["blocks_executed"]
            stops += verdict["cost"]["stops"]
        kind = said.split(":")[0]
        totals[kind] = totals.get(kind, 0) + 1
        print(f"{program.name}: {said}", flush=True)
        if kind == "FAILED":
            failures.append(f"{program.name}: {said}")
    print(totals, f"{stops / max(blocks, 1):.3f} stops per block")
    # Said again at the end: of a failed test's output its last lines are shown.
    print("".join(line + "\n" for line in failures), end="")
    if stops > 0.5 * blocks:
        print("more than one stop for two blocks")
        failed += 1
    return 1 if failed or not totals.get("verified") else 0


if __name__ == "__main__":
    sys.exit(main())
