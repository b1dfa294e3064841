#!/usr/bin/env python3
"""callgrind's counts of gzip, judged by a run of the unmodified program.

As callgrind counts by default, a call through the linkage table has the stub's instructions in its
own count: wrong, and the report says why.  With --skip-plt=no every count of gzip's own code is
right.
"""
import json
import os
import shutil
import sys

import processes

TALLY = os.environ["TALLY"]
WORK = os.environ["WORK"]
SKIPPED = 77


def verdict_of(gzip, label, *options):
    command = [gzip, "-1", "-c", "text"]
    out = os.path.join(WORK, label + ".out")
    processes.run(
        ["valgrind", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes", *options,
         "--callgrind-out-file=" + out, *command], WORK, label, 250, cwd=WORK)
    result = os.path.join(WORK, label + ".json")
    done = processes.run([TALLY, "verify", "--profile=" + out, "--format=json", "-o", result, "--",
                          *command], WORK, label + "-verify", 250, cwd=WORK)
    if not os.path.exists(result):
        sys.exit(f"{label}: {done.end()}: {done.stderr[-400:]}")
    with open(result, encoding="utf-8") as f:
        verdict = json.load(f)
    if done.status != (0 if verdict["verified"] else 1):
        sys.exit(f"{label}: verified {verdict['verified']}, but {done.end()}")
    own = [f for f in verdict["findings"] if f["module"] == gzip and f["reason"] == "wrong"]
    return own, any("linkage table" in remark for remark in verdict["remarks"])


def main():
    gzip, valgrind = shutil.which("gzip"), shutil.which("valgrind")
    if gzip is None or valgrind is None:
        return SKIPPED
    gzip = os.path.realpath(gzip)
    with open(os.path.join(WORK, "text"), "w", encoding="utf-8") as f:
        f.writelines(f"line {i} of a text {i * i % 97}\n" for i in range(400))
    failed = []
    wrong, said = verdict_of(gzip, "default")
    if not wrong or not said:
        failed.append(f"by default: {len(wrong)} wrong, linkage table named: {said}")
    wrong, said = verdict_of(gzip, "skip-plt-no", "--skip-plt=no")
    if wrong or said:
        failed.append(f"--skip-plt=no: {wrong[:3]}, linkage table named: {said}")
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
