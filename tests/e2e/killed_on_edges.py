#!/usr/bin/env python3
"""Where a thread is when it is killed is known to the instruction: a hundred children of one
program get SIGKILL in the middle of loops, many of them in or next to the counter of a taken edge.
What they have counted themselves, in memory that outlives them, is what the profile says of the
instructions that did."""
import csv
import io
import subprocess

from refusal import accepted, compile_c, complain, finish, path

CHILDREN = 100
SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { OUTER, THIRD, INNER, KINDS };
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": incq %0" : "+m"(counts[kind]) : : "cc")
__attribute__((noinline, noclone)) static void spin(volatile unsigned long* counts) {
  for (unsigned long i = 0;; ++i) {
    COUNT(OUTER);
    if (i % 3 == 0) {
      COUNT(THIRD);
      if (i % 7 == 0) continue;
    }
    unsigned long n = i & 3;
    do COUNT(INNER); while (n-- != 0);
  }
}
int main(void) {
  unsigned long* counts =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < CHILDREN; ++i) {
    const pid_t child = fork();
    if (child == 0) spin(counts);
    usleep(10000 + 13 * i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  for (int kind = 0; kind < KINDS; ++kind) printf("%lu\n", counts[kind]);
  return 0;
}
"""


def addresses(program):
    lines = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    fields = [line.split() for line in lines.splitlines()]
    return {f[2]: int(f[0], 16) for f in fields if len(f) == 3 and f[2].startswith("at_")}


for level in ("-O1", "-O2"):
    program = compile_c("killed" + level, SOURCE, level, "-no-pie", f"-DCHILDREN={CHILDREN}")
    file = path(f"killed{level}.tally")
    done = accepted(["profile", "-o", file, "--", program], level, timeout=120)
    own = dict(zip(("at_OUTER", "at_THIRD", "at_INNER"), map(int, done.stdout.split())))
    dump = accepted(["dump", "instructions", file, "--format=csv"], f"{level}, dump").stdout
    counted = {int(row["address"], 16): int(row["count"])
               for row in csv.DictReader(io.StringIO(dump.decode())) if row["module"] == program}
    for name, address in addresses(program).items():
        if counted.get(address) != own[name]:
            complain(f"{level}, {name}: the profile has {counted.get(address)}, it was {own[name]}")
    if len(own) != 3 or min(own.values()) < 1000 * CHILDREN:
        complain(f"{level}: the children have hardly run: {own}")
    print(level, own)
finish()
