#!/usr/bin/env python3
"""The heap of a program at a fixed address begins where the kernel's lot falls, up to a gigabyte
behind it on newer kernels: nothing of Tally's is in its way there, so that it grows as it does
natively, by half a gigabyte, in the program and in a child of its; and the counts are those of the
source."""
import sqlite3

from refusal import accepted, compile_c, complain, finish, path

RUNS, STEPS = 14, 512
SOURCE = r"""
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline, noclone))
static int failed;
NOINLINE void step(void) {
  char* more = sbrk(1 << 20);
  if (more == (char*)-1) ++failed;
  else *more = 1;
}
int main(void) {
  for (int i = 0; i < STEPS; ++i) step();
  printf("%d steps failed\n", failed);
  fflush(stdout);
  brk(sbrk(0) - ((long)(STEPS - failed) << 20));
  const int child = fork();
  if (child == 0) {
    for (int i = 0; i < STEPS; ++i) step();
    _exit(failed != 0);
  }
  int status;
  waitpid(child, &status, 0);
  return status != 0;
}
"""


def entries(file):
    with sqlite3.connect(file) as database:
        (count,), = database.execute("SELECT sum(entries) FROM procedures WHERE name = 'step'")
    return count


for kind, flags in {"fixed": ["-no-pie"], "static": ["-static"], "pie": ["-pie"]}.items():
    program = compile_c(kind, SOURCE, f"-DSTEPS={STEPS}", *flags)
    for i in range(RUNS if kind != "pie" else 3):
        file, said = path("heap.tally"), f"{kind}, run {i}"
        done = accepted(["profile", "-o", file, "--", program], said, randomize=True)
        if done.stdout != b"0 steps failed\n":
            complain(f"{said}: {done.stdout!r}")
        if entries(file) != 2 * STEPS:
            complain(f"{said}: step was entered {entries(file)} times")
finish()
