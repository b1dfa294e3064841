#!/usr/bin/env python3
"""A program that the kernel kills for want of memory (a control group's limit): what was counted
until then is kept, the end is named, and Tally ends as the program did.  The kernel takes the
memory away at once, so that the stack may be gone before it can be read: that is named, too."""
import csv
import json
import os
import pathlib
import signal
import subprocess
import sys

HOG = r"""
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) void grown(void) { __asm__ volatile("" ::: "memory"); }
int main(void) {
  for (;;) {
    char* p = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return 3;
    memset(p, 1, 1 << 20);
    grown();
    if (write(1, ".", 1) != 1) return 4;
  }
}
"""
LIMIT = 256 << 20
TALLY, WORK = os.environ["TALLY"], pathlib.Path(os.environ["WORK"])


def group():
    """A new control group with a limit, of either version; None where we may not make one."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        folder = pathlib.Path(root) / f"tally-test-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(LIMIT))
            return folder
        except OSError:
            folder.rmdir()
    return None


def main():
    folder = group()
    if folder is None:
        print("no control group can be made here")
        return 77
    (WORK / "hog.c").write_text(HOG)
    subprocess.run(["gcc", "-O1", "-o", WORK / "hog", WORK / "hog.c"], check=True)
    profile = WORK / "hog.tally"
    try:
        done = subprocess.run(
            ["sh", "-c", 'echo $$ > "$1"; shift; exec "$@"', "sh", folder / "cgroup.procs", TALLY,
             "profile", "-o", profile, "--", WORK / "hog"],
            capture_output=True, timeout=300, check=False)
    finally:
        folder.rmdir()
    problems = []
    if done.returncode != -signal.SIGKILL:
        problems.append(f"ended with {done.returncode}: {done.stderr.decode()}")
    report = json.loads(subprocess.run([TALLY, "report", profile, "--format=json"], check=True,
                                       capture_output=True).stdout)
    run = report["runs"][0]
    issues = [f"{i['scope']}: {i['message']}" for i in report["issues"]]
    lost = any("back-trace: the stack could not be followed" in i for i in issues)
    if not lost and (issues or not run["balanced"]):
        problems.append(f"balanced {run['balanced']}, issues {issues}")
    if "signal 9" not in str(run["ended"]):
        problems.append(f"the run {run['ended']}")
    # What returned is counted however it ended; the last call may not have been followed by a dot.
    symbols = subprocess.run(["nm", WORK / "hog"], check=True, capture_output=True, text=True)
    address = next(int(line.split()[0], 16) for line in symbols.stdout.splitlines()
                   if line.endswith(" grown"))
    blocks = subprocess.run([TALLY, "dump", "blocks", profile], check=True, capture_output=True,
                            text=True).stdout
    counts = [int(row["count"]) for row in csv.DictReader(blocks.splitlines())
              if row["module"] == str(WORK / "hog") and int(row["block"], 16) == address]
    written = len(done.stdout)
    if written == 0 or counts not in ([written], [written + 1]):
        problems.append(f"{written} were written, counted: {counts}")
    print(*problems, sep="\n")
    return 1 if problems else 0


sys.exit(main())
