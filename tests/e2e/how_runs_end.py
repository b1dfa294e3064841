#!/usr/bin/env python3
"""However a run ends, what was counted is kept and marked with how it ended; and no end of ours
leaves the program behind.

Each program counts to a number that it says before it ends, with threads and children under way.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import time

from processes import alive
from refusal import TALLY, WORK, accepted, compile_c, complain, finish, path, profile, run

PROGRAM = compile_c(
    "ends",
    r"""
    #define _GNU_SOURCE
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile long sink;
    __attribute__((noinline)) void counted(long i) { sink += i; }
    __attribute__((noinline)) void other(long i) { sink -= i; }
    static void* spin(void* p) { for (;;) other(1); return p; }
    static void* ender(void* p) {
      usleep(50000);
      const char* how = p;
      if (!strcmp(how, "thread_exit_group")) exit(6);
      if (!strcmp(how, "thread_abort")) abort();
      return NULL;
    }
    int main(int argc, char** argv) {
      const char* how = argv[1];
      pthread_t t;
      struct rlimit no_core = {0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
      for (int i = 0; i < 3; i++) pthread_create(&t, NULL, spin, NULL);
      for (long i = 0; i < 1234; i++) counted(i);
      int ready[2];
      char byte = 0;
      if (pipe(ready) != 0) abort();
      pid_t child = fork();
      if (child == 0) {
        for (long i = 0; i < 77; i++) counted(i);
        write(ready[1], &byte, 1);
        pause();
      }
      read(ready[0], &byte, 1);  /* the child has counted */
      printf("pid %d child %d\n", getpid(), child);
      fflush(stdout);
      if (!strcmp(how, "_exit")) { kill(child, SIGTERM); waitpid(child, NULL, 0); _exit(4); }
      if (!strcmp(how, "abort")) { kill(child, SIGKILL); waitpid(child, NULL, 0); abort(); }
      if (!strncmp(how, "thread_", 7)) {
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
        pthread_create(&t, NULL, ender, (void*)how);
      }
      if (!strcmp(how, "memory")) {
        kill(child, SIGTERM);
        waitpid(child, NULL, 0);
        struct rlimit limit = {0, 0};
        setrlimit(RLIMIT_DATA, &limit);
        for (;;) {
          char* p = malloc(1 << 20);
          if (p == NULL) { fprintf(stderr, "out of memory\n"); exit(9); }
          memset(p, 1, 1 << 20);
        }
      }
      for (;;) pause();
    }
    """,
    "-pthread",
)
ADDRESS = next(
    int(line.split()[0], 16)
    for line in subprocess.run(
        ["nm", PROGRAM], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if line.split()[-1] == "counted"
)


def report_of(name, what, number=None):
    more = [f"--run={number}"] if number else []
    done = accepted(["report", path(name), "--format=json", *more], what)
    report = json.loads(done.stdout)
    if report["issues"] or not report["flow"]["balanced"]:
        complain(f"{what}: not exact: {report['issues']} {report['flow']['faults']}")
    if sum(t["instructions"] for t in report["threads"]) != report["totals"]["instructions"]:
        complain(f"{what}: the threads' totals do not add up")
    return report


def counted(name, number):
    done = accepted(["dump", "instructions", path(name), f"--run={number}"], "dump")
    for line in done.stdout.decode().splitlines():
        module, _, address, count = line.rsplit(",", 3)
        if module == PROGRAM and address == hex(ADDRESS):
            return int(count)
    return 0


def check(name, what, ended):
    """`ended`: of the program and of its child, as (exited, status or signal)."""
    for number, (expected, count) in enumerate(zip(ended, (1234, 77)), start=1):
        run_facts = report_of(name, what, number)["run"]
        exited = run_facts["exited"]
        got = (exited, run_facts["exit_status" if exited else "signal"])
        if got != expected:
            complain(f"{what}: run {number} ended as {got}, expected {expected}")
        if counted(name, number) != count:
            complain(f"{what}: run {number} counted {counted(name, number)}, expected {count}")


for how, status, ended in (
    ("_exit", 4, ((True, 4), (False, signal.SIGTERM))),
    ("thread_exit_group", 6, ((True, 6), (False, signal.SIGTERM))),
    ("memory", 9, ((True, 9), (False, signal.SIGTERM))),
):
    done = run(profile(how + ".tally", PROGRAM, how), how)
    if done.status != status:
        complain(f"{how}: ended with {done.end()}: {done.stderr.decode()}")
    check(how + ".tally", how, ended)
for how in ("abort", "thread_abort"):
    done = run(profile(how + ".tally", PROGRAM, how), how + ", by signal")
    if done.signal != signal.SIGABRT:
        complain(f"{how}: ended with {done.end()}")
    child = signal.SIGKILL if how == "abort" else signal.SIGTERM
    check(how + ".tally", how, ((False, signal.SIGABRT), (False, child)))


def started(name, *options):
    """Tally with the program in the middle of its run; its and its child's process ids."""
    tally = subprocess.Popen(
        [TALLY, "profile", "-o", path(name), *options, "--", PROGRAM, "wait"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=WORK,
    )
    line = tally.stdout.readline().decode()
    pid, child = map(int, re.fullmatch(r"pid (\d+) child (\d+)\n", line).groups())
    time.sleep(0.3)
    return tally, pid, child


def must_be_gone(what, *pids):
    for _ in range(100):
        left = [pid for pid in pids if alive(pid)]
        if not left:
            return
        time.sleep(0.1)
    complain(f"{what}: left running: {left}")
    for pid in left:
        os.kill(pid, signal.SIGKILL)


# Killed from outside, as the kernel does when memory runs out.
tally, pid, child = started("killed.tally")
os.kill(child, signal.SIGKILL)
os.kill(pid, signal.SIGKILL)
tally.communicate(timeout=60)
if tally.returncode != -signal.SIGKILL:
    complain(f"killed: Tally ended with {tally.returncode}")
check("killed.tally", "killed from outside", ((False, signal.SIGKILL), (False, signal.SIGKILL)))

# A signal to Tally alone is the program's, as with timeout(1).
tally, pid, child = started("term.tally")
os.kill(child, signal.SIGTERM)
tally.send_signal(signal.SIGTERM)
tally.communicate(timeout=60)
if tally.returncode != -signal.SIGTERM:
    complain(f"SIGTERM to Tally: ended with {tally.returncode}")
check("term.tally", "SIGTERM to Tally", ((False, signal.SIGTERM), (False, signal.SIGTERM)))

# The monitor is killed: so is everything it held.
tally, pid, child = started("monitor.tally")
tally.kill()
tally.communicate(timeout=60)
must_be_gone("the monitor was killed", pid, child)
if os.path.exists(path("monitor.tally")):
    complain("the monitor was killed, but there is a profile")
if not [name for name in os.listdir(WORK) if name.startswith("monitor.tally.partial-")]:
    complain("the monitor was killed with nothing under way; the next lines show nothing")
accepted(profile("monitor.tally", "/bin/true"), "a profile in the same place")
left = [name for name in os.listdir(WORK) if name.startswith("monitor.tally.")]
if left:
    complain(f"what the killed monitor had begun is still there: {left}")


# A full disk: what could not be written is said, and no half of a profile is left.
disk = path("disk")
os.makedirs(disk)
mounted = subprocess.run(
    ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True, check=False
)
if mounted.returncode == 0:
    try:
        done = run(["profile", "-o", disk + "/x.tally", "--", PROGRAM, "_exit"], "full disk")
        text = done.stderr.decode()
        ran = "pid" in str(done.stdout)
        if done.status != 125 or "cannot write profile" not in text or not ran:
            complain(f"full disk: {done.end()}, {done.stdout!r}, {text!r}")
        # What was counted is kept, in another place.
        kept = re.search("; it is in '([^']+)' instead\n", text)
        if kept:
            shutil.move(kept.group(1), path("kept.tally"))
            check("kept.tally", "full disk", ((True, 4), (False, signal.SIGTERM)))
        else:
            complain(f"full disk: the profile is lost: {text!r}")
        if os.listdir(disk):
            complain(f"full disk: left behind: {os.listdir(disk)}")
    finally:
        subprocess.run(["umount", disk], check=True)
else:
    print("no tmpfs can be mounted: the full disk is not tried")

# A folder that takes no files any more when the program has ended.
folder = path("folder")
os.makedirs(folder)
command = ["profile", "-o", folder + "/x.tally", "--", "rm", "-r", folder]
done = run(command, "a folder that vanishes")
text = done.stderr.decode()
kept = re.search("; it is in '([^']+)' instead\n", text)
if done.status != 125 or not kept:
    complain(f"a folder that vanishes: {done.end()}, {text!r}")
else:
    shutil.move(kept.group(1), path("vanished.tally"))
    report_of("vanished.tally", "a folder that vanishes")
finish()
