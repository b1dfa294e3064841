#!/usr/bin/env python3
"""A thread has noted a visit of a library's branch, and sleeps; the library is unloaded and loaded
again, as it was or another one at the same addresses; the thread's notes are read in between.  What
the libraries count themselves is what the profile says."""
import os
import sqlite3
import subprocess

from own_counts import blank, counts_of, dumped, expect_own, words_of
from refusal import accepted, compile_c, complain, finish, path

LIBRARY = r"""
#define COUNT(number) COUNT_AT(number)
#define COUNT_AT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": lock incq %0" \
                   : "+m"(counts[number]) : : "cc")
int via(int (*f)(int), int n, volatile unsigned long* counts) {
  COUNT(FIRST);
  n = f(n);
  COUNT(SECOND);
  return n + ADDED;
}
"""
SOURCE = r"""
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
typedef int (*via_function)(int (*)(int), int, volatile unsigned long*);
static volatile unsigned long* counts;
static via_function via;
static void* library;
static int begin[2], done[2];
static char byte;
__attribute__((noinline, noclone)) static int g(int n) { return n * 3; }
__attribute__((noinline, noclone)) static int h(int n) { return n + 5; }
static int (*volatile known)(int) = g;
static void load(const char* file) {
  library = dlopen(file, RTLD_NOW);
  if (library == NULL) exit(3);
  via = (via_function)dlsym(library, "via");
}
static void sleep_once(void) {
  if (write(done[1], &byte, 1) != 1 || read(begin[0], &byte, 1) != 1) exit(4);
}
static void* sleeper(void* result) {
  int sum = via(h, 1, counts);  // asked for: from now on its return is known
  sleep_once();
  sum += via(g, 2, counts);  // noted, and nothing is asked for that has not been asked for before
  sleep_once();
  // Asks, so that the notes are read.
  if (mprotect((void*)counts, 4096, PROT_READ | PROT_WRITE) != 0) exit(5);
  sleep_once();
  for (int i = 0; i < 50; ++i) sum += via(i % 2 ? g : h, i, counts);
  *(int*)result = sum;
  return NULL;
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 4 || pipe(begin) != 0 || pipe(done) != 0) return 2;
  load(argv[2]);
  int sum = known(1), result;
  pthread_t thread;
  pthread_create(&thread, NULL, sleeper, &result);
  if (read(done[0], &byte, 1) != 1 || write(begin[1], &byte, 1) != 1) return 6;
  if (read(done[0], &byte, 1) != 1) return 6;
  void* const before = (void*)via;
  dlclose(library);
  if (write(begin[1], &byte, 1) != 1 || read(done[0], &byte, 1) != 1) return 8;
  load(argv[3]);
  sum += via(g, 7, counts);
  if (write(begin[1], &byte, 1) != 1) return 7;
  pthread_join(thread, NULL);
  printf("%d %s\n", sum + result, before == (void*)via ? "same place" : "elsewhere");
  return 0;
}
"""


def library(name, first, added):
    return compile_c(name, LIBRARY, "-O1", "-shared", "-fPIC", f"-DFIRST={first}",
                     f"-DSECOND={first + 1}", f"-DADDED={added}")


program = compile_c("loads", SOURCE, "-O1", "-pthread", "-fcf-protection=none")
one, two = library("one.so", 0, 1), library("two.so", 2, 3)
for again in (one, two):
    for options in ([], ["--no-opt=notes"]):
        what = f"{os.path.basename(again)} {options}"
        shared, file = path("counts"), path("run.tally")
        blank(shared, 4)
        native = subprocess.run([program, shared, one, again], capture_output=True, check=True)
        blank(shared, 4)
        said = accepted(["profile", "-o", file, *options, "--", program, shared, one, again], what,
                        env=dict(os.environ, TALLY_CACHE="")).stdout
        own = words_of(shared)
        print(what, said, own)
        if said != native.stdout or not said.endswith(b" same place\n"):
            complain(f"{what}: prints {said}, natively {native.stdout}")
        with sqlite3.connect(file) as database:
            noted = database.execute("SELECT value FROM facts WHERE name = 'visits_noted'")
            if (int(noted.fetchone()[0]) > 0) == bool(options):
                complain(f"{what}: visits are noted only if they may be, and then they are")
        counted = counts_of(dumped("instructions", file, what))
        for module in {one, again}:
            expect_own(what, counted, module, own)
finish()
