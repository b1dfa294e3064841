#!/usr/bin/env python3
"""Calls through pointers that the loader has made read-only, in a program that is linked so, with
a linkage table and without: led there directly, by an earlier run to what is preloaded in a later
one, and compared again once threads, or a child in memory of its own, make them writable and
change them. What program and libraries count themselves is what the profile says."""
import os
import sqlite3
import subprocess

from own_counts import blank, counts_of, dumped, expect_own, words_of
from refusal import accepted, compile_c, complain, finish, path

COUNT = r"""
#define COUNT(number) COUNT_AT(number)
#define COUNT_AT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": lock incq %0" \
                   : "+m"(counts[number]) : : "cc")
"""
LIBRARY = COUNT + r"""
int ask(int n, volatile unsigned long* counts) {
  COUNT(NUMBER);
  return n + NUMBER;
}
"""
SOURCE = COUNT + r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int ask(int n, volatile unsigned long* counts);
static volatile unsigned long* counts;
enum { ROUNDS = 20 };
static volatile int changed, wrong;
static pthread_barrier_t barrier;
__attribute__((noinline, noclone)) static long call(int n) {
  COUNT(2);
  return ask(n, counts);
}
__attribute__((noinline, noclone)) static int other(int n, volatile unsigned long* counts) {
  COUNT(3);
  return n + 100;
}
static uintptr_t* slot(void) {
  uintptr_t* at;
  __asm__("lea ask@GOTPCREL(%%rip), %0" : "=r"(at));
  return at;
}
static void lead_to(uintptr_t target) {
  void* const page = (void*)((uintptr_t)slot() & -4096);
  if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0) exit(5);
  *slot() = target;
}
static void seal(void) {
  void* const page = (void*)((uintptr_t)slot() & -4096);
  if (mprotect(page, 4096, PROT_READ) != 0) exit(5);
}
static long first;  // what it comes to with the first pointer
static void expect(int round) {
  if (call(0) != (round % 2 ? first : 100)) wrong++;
}
static void* worker(void* unused) {
  for (int round = 0; round < ROUNDS; ++round) {
    pthread_barrier_wait(&barrier);
    while (changed <= round) {
      const long said = call(0);
      if (said != first && said != 100) wrong++;
    }
    expect(round);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}
static void change(void) {
  pthread_t threads[2];
  const uintptr_t pointer = *slot();
  first = call(0);
  pthread_barrier_init(&barrier, NULL, 3);
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, worker, NULL);
  for (int round = 0; round < ROUNDS; ++round) {
    pthread_barrier_wait(&barrier);
    usleep(500);
    lead_to(round % 2 ? pointer : (uintptr_t)other);
    if (round % 4 > 1) seal();
    expect(round);
    changed = round + 1;
    pthread_barrier_wait(&barrier);
  }
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  long sum = 0;
  for (int i = 0; i < 5000; ++i) sum += call(i);
  if (strcmp(argv[2], "threads") == 0) change();
  if (strcmp(argv[2], "fork") == 0) {
    fflush(stdout);
    const pid_t child = fork();
    for (int i = 0; i < 300; ++i) sum += call(i);
    if (child == 0) {
      lead_to((uintptr_t)other);
      for (int i = 0; i < 300; ++i) sum += call(i);
    }
    int status = 0;
    if (child != 0) waitpid(child, &status, 0);
    for (int i = 0; i < 300; ++i) sum += call(i);
  }
  printf("%ld, %d wrong\n", sum, wrong);
  return 0;
}
"""
ONE, TWO = (compile_c(f"number{n}.so", LIBRARY, "-shared", "-fPIC", f"-DNUMBER={n}")
            for n in (0, 1))
LINK = ("-pthread", "-Wl,-z,now", "-Wl,-z,relro", ONE)
PROGRAMS = {
    "table": compile_c("table", SOURCE, *LINK),
    "no_table": compile_c("no_table", SOURCE, "-fno-plt", *LINK),
    "fixed": compile_c("fixed", SOURCE, "-no-pie", "-fno-plt", *LINK),
}


def run(program, mode, *options, cache="", preload="", sealed=True, through=True):
    what = f"{os.path.basename(program)} {mode} {' '.join(options)} {preload}"
    shared, file = path("counts"), path("run.tally")
    environment = dict(os.environ, TALLY_CACHE=cache)
    if preload:
        environment["LD_PRELOAD"] = preload
    said = []
    for command in ([program], ["profile", "-o", file, *options, "--", program]):
        blank(shared, 4)
        if command[0] == program:
            done = subprocess.run([*command, shared, mode], env=environment, check=True,
                                  capture_output=True)
            if done.stderr:
                complain(f"{what}: {done.stderr}")
        else:
            done = accepted([*command, shared, mode], what, env=environment)
        said.append(sorted(done.stdout.splitlines()))
    if said[0] != said[1] or b" 0 wrong" not in said[1][0]:
        complain(f"{what}: prints {said[1]}, natively {said[0]}")
    own = words_of(shared)
    counted = counts_of(dumped("instructions", file, what))
    for module in (program, ONE, TWO):
        if module != TWO or preload:
            expect_own(what, counted, module, own)
    with sqlite3.connect(file) as database:
        facts = dict(database.execute("SELECT name, sum(value) FROM facts WHERE name LIKE "
                                      "'branches_%' GROUP BY name"))
        faults = database.execute("SELECT * FROM issues").fetchall()
    print(what, said[1], own, facts)
    if faults:
        complain(f"{what}: not exact: {faults}")
    if (facts["branches_sealed"] > 0) != sealed:
        complain(f"{what}: {facts['branches_sealed']} branches were led directly")
    if (facts["branches_unsealed"] > 0) != (sealed and mode != "plain"):
        complain(f"{what}: {facts['branches_unsealed']} of them were compared again")
    if (facts["branches_through"] > 0) != through:
        complain(f"{what}: {facts['branches_through']} branches were led through a linkage stub")


for built in PROGRAMS.values():
    for wanted in ("plain", "threads", "fork"):
        run(built, wanted)
        run(built, wanted, "--stress-renewal")
        run(built, wanted, "--no-opt=sealed", sealed=False, through=False)
        run(built, wanted, "--no-opt=through", through=False)
    # What one run has left says that the pointer leads to another function than it does.
    run(built, "plain", cache=path("cache"))
    run(built, "plain", cache=path("cache"), preload=TWO)
    run(built, "plain", cache=path("cache"))
    run(built, "threads", "--no-opt=low32", cache=path("cache"))
finish()
