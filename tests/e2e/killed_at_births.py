#!/usr/bin/env python3
"""Threads are killed at the very stop where the birth of a thread or a process is announced, or
that they have become another program, between the moment at which the monitor hears of the stop
and that at which it asks what the stop is about.  The monitor is made slow right there.

(It asked a thread that had gone on to its exit meanwhile, and took the process' exit status for
the number of the thread that was born.)

A process that was born lives on, though its maker is dead.  At last, processes are killed again
and again at random while they become others.
"""
import json
import os

import processes
from refusal import accepted, compile_c, complain, finish, path, profile

SLOW = compile_c(
    "slow.so",
    r"""
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <sys/resource.h>
    #include <unistd.h>
    static char* times;  // for each number of a ptrace event, how many ms it takes to look at it
    __attribute__((constructor)) static void begin(void) {
      if (getenv("SLOW") != 0) times = strdup(getenv("SLOW"));
      unsetenv("LD_PRELOAD");  // for the monitor only
    }
    pid_t wait4(pid_t which, int* status, int options, struct rusage* usage) {
      static pid_t (*real)(pid_t, int*, int, struct rusage*);
      if (real == 0) real = (pid_t (*)(pid_t, int*, int, struct rusage*))dlsym(RTLD_NEXT, "wait4");
      pid_t got = real(which, status, options, usage);
      int event = got > 0 && WIFSTOPPED(*status) ? *status >> 16 : 0;
      if (event >= 1 && event <= 4 && times != 0) usleep((times[event - 1] - '0') * 100000);
      return got;
    }
    """,
    "-shared",
    "-fPIC",
    "-ldl",
)
PROGRAM = compile_c(
    "killed",
    r"""
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void* quick(void* p) { return p; }
    static void* makes_thread(void* p) {
      pthread_t t;
      pthread_create(&t, 0, quick, 0);
      for (;;) pause();
    }
    static void* forks(void* p) {
      if (fork() == 0) {
        int out = open("child", O_WRONLY | O_CREAT | O_TRUNC, 0600);
        _exit(write(out, "lives", 5) != 5);
      }
      for (;;) pause();
    }
    static void* becomes(void* p) {
      execl("/proc/self/exe", "killed", "waits", (char*)0);
      return p;
    }
    static void child_becomes(int threaded, int after) {
      pid_t child = fork();
      if (child == 0) {
        pthread_t t;
        if (!threaded) becomes(0);
        pthread_create(&t, 0, becomes, 0);
        for (;;) pause();
      }
      usleep(after);
      kill(child, SIGKILL);
      waitpid(child, 0, 0);
    }
    int main(int argc, char** argv) {
      pthread_t t;
      if (strcmp(argv[1], "waits") == 0) for (;;) pause();
      if (strcmp(argv[1], "thread") == 0) pthread_create(&t, 0, makes_thread, 0);
      if (strcmp(argv[1], "fork") == 0) pthread_create(&t, 0, forks, 0);
      if (strcmp(argv[1], "exec") == 0) child_becomes(0, 150000);
      if (strcmp(argv[1], "thread-exec") == 0) child_becomes(1, 150000);
      if (strcmp(argv[1], "often") == 0) {
        for (int i = 0; i < 40; i++) child_becomes(i % 2, rand() % 8000);
        return 5;
      }
      usleep(200000);
      exit(5);
    }
    """,
    "-pthread",
)
SANITIZED = os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"


def killed(how, slow, runs=None, number=0):
    """Nothing is inexact, whoever was killed (`often`: unless it is said)."""
    what = f"{how}, {slow}, run {number}"
    more = {"LD_PRELOAD": SLOW, "SLOW": slow, "ASAN_OPTIONS": SANITIZED}
    more = {"env": dict(processes.ENVIRONMENT, **more), "randomize": True}
    accepted(profile("x.tally", PROGRAM, how), what, 5, runs is not None, **more)
    done = accepted(["report", path("x.tally"), "--format=json"], "report", quiet=False)
    report = json.loads(done.stdout)
    if runs is None:
        return
    if report["issues"] or not report["flow"]["balanced"]:
        complain(f"{what}: {report['issues'][:3]} {report['flow']['faults'][:3]}")
    if len(report["runs"]) != runs:
        complain(f"{what}: {len(report['runs'])} image runs, not {runs}")


# Events are fork, vfork, clone, exec.  One that is looked at after 500 ms.
killed("thread", "0050", 1)
killed("fork", "5000", 2)
with open(path("child")) as child:
    if child.read() != "lives":
        complain("the child did not live")
killed("exec", "0005", 2)
killed("thread-exec", "0005", 2)
for again in range(int(os.environ.get("RUNS", "3"))):
    killed("often", "0000", number=again)
finish()
