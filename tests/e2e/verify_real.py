#!/usr/bin/env python3
"""Five real programs with short inputs: Tally's profile of each is verified by traps, no residue.

Programs that look at the time (lua5.4 seeds its hashes with it) or at /proc/self/maps (gawk's
libsigsegv) cannot be here: their counts differ by themselves.  The goal of half a stop for each
block executed is checked here, too.
"""
import json
import os
import shutil
import sys

import processes

TALLY = os.environ["TALLY"]
WORK = os.environ["WORK"]

TEXT = "".join(f"line {i} of a text that compresses {i * i % 97}\n" for i in range(40))
COMMANDS = {
    "gzip": ["gzip", "-1", "-c", "text"],
    "bzip2": ["bzip2", "-1", "-c", "text"],
    "xz": ["xz", "-0", "-T1", "-c", "text"],
    "sqlite3": ["sqlite3", ":memory:", "create table t(a); insert into t values(1),(2);"
                " select sum(a) from t;"],
    "sed": ["sed", "-n", "s/line \\(1[0-9]*\\)/\\1/p", "text"],
}


def run(command, label):
    return processes.run(command, WORK, label, 250, cwd=WORK)


def one(name, command):
    path = shutil.which(command[0])
    if path is None:
        return f"{name}: not installed"
    command = [os.path.realpath(path)] + command[1:]
    native = run(command, name + "-native")
    file = os.path.join(WORK, name + ".tally")
    done = run([TALLY, "profile", "-o", file, "--", *command], name + "-profile")
    if done.stdout != native.stdout:
        return f"{name}: `tally profile` changes the output"
    result = os.path.join(WORK, name + ".json")
    line = [TALLY, "verify", "--profile=" + file, "--format=json", "-o", result, "--"]
    done = run(line + command, name + "-verify")
    if not os.path.exists(result):
        return f"{name}: {done.end()}: {done.stderr[-400:]}"
    with open(result, encoding="utf-8") as f:
        verdict = json.load(f)
    cost = verdict["cost"]
    print(f"{name}: {cost['blocks_executed']} blocks, {cost['stops_per_block']:.3f} stops a block,"
          f" {cost['microseconds_per_stop']:.1f} us a stop, {cost['seconds']:.2f} s", flush=True)
    # The vdso's clock reads again when the kernel has just written: two runs of xz differ there.
    clock = all(f["module"] == "[vdso]" and f["reason"] == "nondeterministic"
                for f in verdict["findings"])
    if not verdict["verified"] and not (clock and verdict["findings"]):
        return f"{name}: {done.end()}, {verdict['findings'][:3]} {verdict.get('first_lost')}"
    if done.status != (0 if verdict["verified"] else 1):
        return f"{name}: {done.end()}, but verified is {verdict['verified']}"
    if done.stdout != native.stdout:
        return f"{name}: the output differs from native"
    if cost["stops_per_block"] > 0.5:
        return f"{name}: more than half a stop a block"
    return None


def main():
    with open(os.path.join(WORK, "text"), "w", encoding="utf-8") as f:
        f.write(TEXT)
    failed = [said for said in (one(*item) for item in COMMANDS.items()) if said]
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
