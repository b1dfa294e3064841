#!/usr/bin/env python3
"""The target never outlives the monitor, and a dying monitor takes it along; a signal that is sent
to the target passes through."""
import os
import signal
import subprocess
import time

import processes
from refusal import TALLY, WORK, complain, compile_c, finish, path

THREADS = r"""
#include <pthread.h>
#include <unistd.h>
static void* run(void* p) { for (;;) (*(volatile long*)p)++; }
int main(void) {
  pthread_t t;
  static long n;
  pthread_create(&t, 0, run, &n);
  write(1, "up\n", 3);
  pause();
}
"""
sleeper = ["/bin/sleep", "300"]
threads = [compile_c("threads", THREADS, "-pthread")]


def start(command, name):
    full = [TALLY, "profile", "-o", path(name), "--", *command]
    child = subprocess.Popen(full, cwd=WORK, start_new_session=True, stdout=subprocess.DEVNULL)
    wanted = os.path.basename(command[0])
    for _ in range(200):
        found = [p for p, c in processes.members_of_group(child.pid) if c == wanted[:15]]
        if found:
            time.sleep(0.3)
            return child, found[0]
        time.sleep(0.05)
    complain(f"{wanted} did not start")
    return child, None


def gone(child, what):
    left = processes.settle(child.pid)
    for _ in range(3):
        left = processes.settle(child.pid) if left else []
    if left:
        complain(f"{what}: left running {left}")
        processes.end_group(child.pid)


for command in (sleeper, threads):
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        child, target = start(command, "a.tally")
        os.kill(child.pid, number)
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            complain(f"tally does not end on {number.name}")
            child.kill()
        gone(child, f"{command[0]}, {number.name} to tally")
    for number in (signal.SIGKILL, signal.SIGTERM):
        child, target = start(command, "b.tally")
        if target is None:
            continue
        os.kill(target, number)
        try:
            if child.wait(20) != -number:
                complain(f"{number.name} to the target: tally ended with {child.returncode}")
        except subprocess.TimeoutExpired:
            complain(f"tally does not notice {number.name} to the target")
            child.kill()
        gone(child, f"{command[0]}, {number.name} to the target")
finish()
