#!/usr/bin/env python3
"""How often procedures are entered is left to their callers in later runs, and no count is another
for it: in loops, by tail calls, through pointers, below recursion, where calls are left by longjmp,
by a signal's handler, or by the end of the program, in threads and in children.  Not of procedures
that are entered by themselves most, and not of a program that did not balance."""
import os
import pathlib
import shutil
import sqlite3
import subprocess

import taught
from refusal import TALLY, compile_c, complain, finish, path
from taught import same

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline, noclone))
static __thread jmp_buf out;
static __thread sigjmp_buf faulted;
static __thread long sum;
static volatile int zero;
static volatile char* volatile nowhere;
typedef void (*function)(long);
NOINLINE static void line(long i) { sum = sum * 3 + i; __asm__ volatile("" ::: "memory"); }
NOINLINE static void branch(long i) { if (i & 1) sum += i; else sum ^= i; }
static const function volatile both[] = {line, branch};
NOINLINE static void tail(long i) { sum += 2; if (i & 2) line(i); else branch(i); }
NOINLINE static void loop(long n) { for (long i = 0; i < n; i++) line(i); }
NOINLINE static void deep(long i) { branch(i); if (i > 1000) longjmp(out, 1); loop(2); }
NOINLINE static void fault(long i) { line(i); if (i % 5 == 0) *nowhere = 1; line(i + 1); }
NOINLINE static long factorial(long n) { line(n); return n < 2 ? 1 : n * factorial(n - 1); }
static int odd(long n);
NOINLINE static int even(long n) { branch(n); return n == 0 ? 1 : odd(n - 1) ^ zero; }
NOINLINE static int odd(long n) { return n == 0 ? 0 : even(n - 1) ^ zero; }
NOINLINE static void end(long i) { line(i); if (i < 2000) exit(0); branch(i); }
static void handler(int number) { (void)number; line(7); siglongjmp(faulted, 1); }
static void tick(int number) { long keep = sum; (void)number; line(1); branch(2); sum = keep; }
NOINLINE static void work(long n) {
  for (long i = 0; i < n; i++) {
    loop(i & 7);
    tail(i);
    both[i & 1](i);
    if (i % 16 == 0) sum += factorial(5) + even(6);
    if (setjmp(out) == 0) deep(i % 4 == 0 ? 1001 : i);
    if (sigsetjmp(faulted, 1) == 0) fault(i);
  }
}
static void* thread(void* n) { work((long)n); return (void*)sum; }
static void* waits(void* n) { work((long)n); for (;;) tail(1); return NULL; }
int main(int argc, char** argv) {
  const char* how = argc > 1 ? argv[1] : "";
  signal(SIGSEGV, handler);
  if (strcmp(how, "traced") == 0) ptrace(PTRACE_TRACEME, 0, 0, 0);
  if (strcmp(how, "ticks") == 0) {
    signal(SIGUSR1, tick);
    for (int i = 0; i < 20; i++) { raise(SIGUSR1); work(2); }
  }
  if (strcmp(how, "more") == 0) { branch(1); line(2); end(5000); }
  work(200);
  if (strcmp(how, "threads") == 0) {
    pthread_t threads[3];
    void* result;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, (void*)(100L + i));
    for (int i = 0; i < 3; i++) { pthread_join(threads[i], &result); sum += (long)result; }
  }
  if (strcmp(how, "busy") == 0) {
    pthread_t other;
    pthread_create(&other, NULL, waits, (void*)20L);
    usleep(20000);
  }
  if (strcmp(how, "fork") == 0) {
    fflush(stdout);
    if (fork() == 0) { work(30); printf("child %ld\n", sum); end(1); }
    wait(NULL);
  }
  printf("%ld\n", sum);
  fflush(stdout);
  if (strcmp(how, "end") == 0) end(1);
  return 0;
}
"""
os.environ["TALLY_CHECK"] = "1"  # also of a single thread the total is found by its counters
FOLDER = pathlib.Path(path("cache"))
PROGRAM = compile_c("callers", SOURCE, "-O2", "-fno-inline", "-pthread")
# How long the other thread runs on is not to be foretold.
VARIES = "busy"
HOW = ("", "threads", "fork", "end", "ticks", "more", VARIES)


class Run(taught.Run):
    def __init__(self, how="", cache=FOLDER, options=()):
        super().__init__(PROGRAM, [how], cache, options, ("instructions", "blocks", "edges"))
        self.left = self.fact("procedures_left_to_callers")
        self.increments = self.fact("counter_increments")


def counting(file):
    """Procedures that count anything."""
    derived = 1
    with sqlite3.connect(file) as database:
        return {name for name, in database.execute(
            "SELECT DISTINCT name FROM procedures JOIN blocks ON blocks.procedure = procedures.id "
            "WHERE source != ?", (derived,))}


plain = {how: Run(how, cache="") for how in HOW}
for how in HOW:
    if plain[how].left != 0:
        complain(f"{how}: entries are left to callers without a record")
first = Run()
second = Run()
same("the first run", plain[""], first)
same("the second run", plain[""], second)
print(f"left: {first.left}, {second.left}; increments: {first.increments}, {second.increments}")
if first.left != 0 or second.left < 20:
    complain(f"{first.left} and {second.left} procedures leave their entries to callers")
if second.increments > 0.9 * Run(options=["--no-opt=callers"]).increments:
    complain("no increments are spared")
# Ways that the record does not know, then knows.
for turn in range(3):
    for how in HOW:
        run = Run(how)
        if how != VARIES:
            same(f"{how}, turn {turn}", plain[how], run)
        if run.left < 20:
            complain(f"{how}, turn {turn}: {run.left} leave their entries to callers")
for options in (["--no-opt=callers"], ["--placement=blocks"], ["--no-opt=weights"],
                ["--no-opt=recall"]):
    run = Run("threads", options=options)
    same(f"{options}", plain["threads"], run)
    if options[0] != "--no-opt=recall" and run.left != 0:
        complain(f"{options}: {run.left} leave their entries to callers")
for options in (["--no-opt=found"], ["--no-opt=defer"], ["--no-opt=shared"], ["--no-opt=low32"],
                ["--no-opt=ahead"], ["--no-opt=rest"], ["--no-opt=joins"], ["--no-opt=through"],
                ["--stress-renewal"], ["--stress-index"]):
    run = Run("fork", options=options)
    same(f"{options}", plain["fork"], run)
    if run.left < 20:
        complain(f"{options}: {run.left} leave their entries to callers")

# Who asks and who does not.
last = path("last.tally")
subprocess.run([TALLY, "profile", "-o", last, "--", PROGRAM], check=True, capture_output=True,
               env=dict(os.environ, TALLY_CACHE=str(FOLDER)))
straight = {"line", "handler", "tick"} & counting(last)
if straight:
    complain(f"straight lines that count: {straight}")
if "factorial" not in counting(last):
    complain("factorial, which is called by itself most, counts nothing")
kept = path("kept")
done = subprocess.run([TALLY, "profile", "-o", path("kept.tally"), f"--keep-counters={kept}", "--",
                       PROGRAM], capture_output=True, check=False, text=True,
                      env=dict(os.environ, TALLY_CACHE=str(FOLDER)))
if done.returncode != 0 or done.stdout != plain[""].stdout:
    complain(f"with kept counters: {done.returncode} {done.stderr}")
if "line" not in counting(path("kept.tally")):
    complain("a straight line counts nothing though counters are kept")


def said(how, *options):
    """How many reasons a run gives for not being exact."""
    file = path("doubt.tally")
    done = subprocess.run([TALLY, "profile", "-o", file, *options, "--", PROGRAM, how], check=False,
                          capture_output=True, text=True,
                          env=dict(os.environ, TALLY_CACHE=str(FOLDER)))
    if done.returncode != 0:
        complain(f"{how}: {done.returncode} {done.stderr}")
    with sqlite3.connect(file) as database:
        return database.execute("SELECT count(*) FROM issues").fetchone()[0]


# A run of which not all is exact withdraws it, whether it did so itself or not.
for options in ([], ["--no-opt=callers"]):
    shutil.rmtree(FOLDER)
    if [Run().left, Run().left][1] < 20:
        complain("two runs that are exact do not leave entries to callers")
    if said("traced", *options) == 0:
        complain("a program that asks to be traced is said to be exact")
    doubtful = Run()
    same(f"after a run that was not exact {options}", plain[""], doubtful)
    if doubtful.left != 0:
        complain(f"after a run that was not exact {options}, {doubtful.left} are left to callers")
finish()
