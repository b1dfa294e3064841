#!/usr/bin/env python3
"""Forks, threads, signals and dlopen in one program, at random and at once, for as long as asked.

The program notes in memory that all its processes share how often each function is going to be
called; Tally's counts, summed over all runs, must be exactly that, every run balanced, no issue
named, and the threads' totals must add up.  A failure keeps its folder and names its seed.

usage: stress.py --tally=PATH [--minutes=10 | --rounds=N] [--seed=1] [--work=FOLDER]
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
FUNCTIONS = ("in_thread", "in_child", "in_handler", "in_library", "in_vfork_maker")

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREAD, CHILD, HANDLER, LIBRARY, MAKER, KINDS };
static long* expected;  // shared by all processes
static void expect(int kind, long n) { __atomic_fetch_add(&expected[kind], n, __ATOMIC_RELAXED); }
static __thread volatile long sink;
#define NOINLINE __attribute__((noinline, noclone, used))
NOINLINE void in_thread(long n) { sink += n; }
NOINLINE void in_child(long n) { sink -= n; }
NOINLINE void in_handler(long n) { sink ^= n; }
NOINLINE void in_vfork_maker(long n) { sink += 2 * n; }
static const char* folder;
extern char** environ;

static void on_signal(int number) {
  expect(HANDLER, 1);
  in_handler(number);
}

static unsigned next(unsigned* state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 16;
}

static void* worker(void* p) {
  unsigned state = (unsigned)(long)p;
  long n = 1 + next(&state) % 2000;
  expect(THREAD, n);
  for (long i = 0; i < n; i++) in_thread(i);
  if (next(&state) % 3 == 0) raise(SIGUSR1);
  if (next(&state) % 4 == 0) pthread_exit(NULL);
  return NULL;
}

static void threads(unsigned* state) {
  pthread_t t[8];
  int n = 1 + (int)(next(state) % 8);
  for (int i = 0; i < n; i++) {
    if (pthread_create(&t[i], NULL, worker, (void*)(long)next(state))) exit(20);
  }
  for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
}

static void child_body(unsigned state) {
  long n = 1 + next(&state) % 1000;
  expect(CHILD, n);
  for (long i = 0; i < n; i++) in_child(i);
  pthread_t t;
  if (next(&state) % 4 == 0 && pthread_create(&t, NULL, worker, (void*)(long)state) == 0) {
    pthread_join(t, NULL);
  }
  if (next(&state) % 5 == 0) {  // a grandchild that nobody waits for
    if (fork() == 0) {
      expect(CHILD, 3);
      for (int i = 0; i < 3; i++) in_child(i);
      _exit(0);
    }
  }
  if (next(&state) % 6 == 0) raise(SIGKILL);
  if (next(&state) % 6 == 0) raise(SIGUSR2);
  _exit((int)(next(&state) % 50));
}

static void forks(unsigned* state) {
  int n = 1 + (int)(next(state) % 3), status;
  pid_t pids[3];
  for (int i = 0; i < n; i++) {
    unsigned seed = next(state);
    pids[i] = fork();
    if (pids[i] < 0) exit(21);
    if (pids[i] == 0) child_body(seed);
  }
  for (int i = 0; i < n; i++) waitpid(pids[i], &status, 0);
}

static void signals(unsigned* state) {
  int n = 1 + (int)(next(state) % 20);
  for (int i = 0; i < n; i++) raise(next(state) % 2 ? SIGUSR1 : SIGUSR2);
}

static void libraries(unsigned* state) {
  char path[512];
  snprintf(path, sizeof path, "%s/libstress%u.so", folder, next(state) % 3);
  void* library = dlopen(path, RTLD_NOW | (next(state) % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
  if (!library) exit(22);
  void (*call)(long) = (void (*)(long))dlsym(library, "in_library");
  long n = 1 + next(state) % 500;
  expect(LIBRARY, n);
  for (long i = 0; i < n; i++) call(i);
  if (next(state) % 3) dlclose(library);
}

static void programs(unsigned* state) {
  int status;
  pid_t pid;
  expect(MAKER, 1);
  in_vfork_maker(1);
  char* arguments[] = {(char*)"true", NULL};
  if (next(state) % 2) {
    if (posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ)) exit(23);
  } else {
    pid = vfork();
    if (pid == 0) {
      execv(next(state) % 3 ? "/bin/true" : "/nonexistent", arguments);
      _exit(1);
    }
  }
  waitpid(pid, &status, 0);
}

static int steps;
static void* driver(void* p) {
  unsigned state = (unsigned)(long)p;
  for (int i = 0; i < steps; i++) {
    switch (next(&state) % 6) {
      case 0: case 1: threads(&state); break;
      case 2: forks(&state); break;
      case 3: signals(&state); break;
      case 4: libraries(&state); break;
      case 5: programs(&state); break;
    }
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  unsigned seed = (unsigned)atoi(argv[1]);
  steps = atoi(argv[2]);
  folder = argv[3];
  expected = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigaction(SIGUSR1, &action, NULL);
  sigaction(SIGUSR2, &action, NULL);
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 20000}, {0, 20000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  pthread_t t[3];
  // pthread_exit loads a library when it is first called.  A child that was forked while another
  // thread was loading one must not (glibc takes no lock for it), so this is done before.
  pthread_create(&t[0], NULL, (void* (*)(void*))pthread_exit, NULL);
  pthread_join(t[0], NULL);
  for (long i = 0; i < 3; i++) pthread_create(&t[i], NULL, driver, (void*)(seed * 7919L + i));
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  timer.it_value.tv_usec = 0;
  setitimer(ITIMER_REAL, &timer, NULL);
  while (wait(NULL) > 0) {}
  usleep(100000);  // grandchildren
  for (int i = 0; i < KINDS; i++) printf("%ld%c", expected[i], i + 1 < KINDS ? ' ' : '\n');
  return 0;
}
"""
LIBRARY = """
static volatile long sink%d[%d];
__attribute__((noinline)) void in_library(long n) { sink%d[0] += n; }
"""


def build(folder):
    (folder / "stress.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O2", "-w", "stress.c", "-o", "stress", "-pthread", "-ldl"],
                   cwd=folder, check=True)
    for i in range(3):
        (folder / f"lib{i}.c").write_text(LIBRARY % (i, 1 + 500 * i, i))
        subprocess.run(["gcc", "-O2", "-shared", "-fPIC", f"lib{i}.c", "-o", f"libstress{i}.so"],
                       cwd=folder, check=True)


def addresses(folder):
    """Function names by (module, address)."""
    found = {}
    for module in ("stress", "libstress0.so", "libstress1.so", "libstress2.so"):
        text = subprocess.run(["nm", module], cwd=folder, capture_output=True, text=True,
                              check=True).stdout
        for line in text.splitlines():
            fields = line.split()
            if fields[-1] in FUNCTIONS and len(fields) == 3:
                found[str(folder / module), int(fields[0], 16)] = fields[-1]
    return found


def ask(tally, *arguments):
    return subprocess.run([tally, *arguments], capture_output=True, text=True, check=True,
                          timeout=300).stdout


def one_round(tally, folder, seed, steps, known):
    """What is wrong; nothing if all is well."""
    profile = str(folder / "stress.tally")
    command = [tally, "profile", "-o", profile, "--", str(folder / "stress"), str(seed),
               str(steps), str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False,
                              env=dict(os.environ, TALLY_CHECK="1"))
    except subprocess.TimeoutExpired:
        return ["does not end"]
    if done.returncode != 0 or done.stderr:
        return [f"ended with {done.returncode}: {done.stderr.strip()}"]
    expected = dict(zip(FUNCTIONS, map(int, done.stdout.split())))
    counted = dict.fromkeys(FUNCTIONS, 0)
    for row in csv.DictReader(ask(tally, "dump", "instructions", profile).splitlines()):
        name = known.get((row["module"], int(row["address"], 16)))
        if name:
            counted[name] += int(row["count"])
    problems = [f"{n}: counted {counted[n]}, called {expected[n]} times"
                for n in FUNCTIONS if counted[n] != expected[n]]
    report = json.loads(ask(tally, "report", profile, "--format=json"))
    problems += [f"{i['scope']}: {i['message']}" for i in report["issues"]]
    problems += [f"run {r['number']} is not balanced" for r in report["runs"] if not r["balanced"]]
    total = sum(thread["instructions"] for thread in report["threads"])
    if total != report["totals"]["instructions"]:
        problems.append(f"threads: {total}, all: {report['totals']['instructions']}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", default=str(HERE.parent / "build" / "release" / "tally"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rounds", type=int, help="instead of --minutes")
    parser.add_argument("--steps", type=int, default=12, help="of each of three threads a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", default=str(HERE / ".work" / "stress"))
    options = parser.parse_args()
    folder = pathlib.Path(options.work).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    build(folder)
    known = addresses(folder)
    tally = os.path.abspath(options.tally)
    end, rounds, failed = time.monotonic() + options.minutes * 60, 0, 0
    while rounds < options.rounds if options.rounds else time.monotonic() < end:
        seed = options.seed + rounds
        problems = one_round(tally, folder, seed, options.steps, known)
        rounds += 1
        if problems:
            failed += 1
            print(f"seed {seed}:", *problems, sep="\n  ", flush=True)
            shutil.copy(folder / "stress.tally", folder / f"failed-{seed}.tally")
    print(f"{rounds} rounds, {failed} failed")
    return 1 if failed or not rounds else 0


if __name__ == "__main__":
    sys.exit(main())
