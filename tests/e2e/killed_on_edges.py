#!/usr/bin/env python3
"""Where a thread is when it is killed is known to the instruction: two hundred children of one
program get SIGKILL in the middle of loops, many of them in or next to the counter of a taken edge.
What they have counted themselves, in memory that outlives them, is what the profile says of the
instructions that did.  Then once more where an earlier run has left the order of the blocks."""
import csv
import io
import os
import sqlite3

from own_counts import addresses
from refusal import accepted, compile_c, complain, finish, path

CHILDREN = 200
KINDS = ("OUTER", "THIRD", "INNER", "ONE", "OTHER")  # behind `at_`
SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { OUTER, THIRD, INNER, ONE, OTHER, KINDS };
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": incq %0" : "+m"(counts[kind]) : : "cc")
__attribute__((noinline, noclone)) static void spin(volatile unsigned long* counts,
                                                     unsigned long end) {
  for (unsigned long i = 0; i != end; ++i) {
    COUNT(OUTER);
    if (i % 3 == 0) {
      COUNT(THIRD);
      if (i % 7 == 0) continue;
    }
    unsigned long n = i & 3;
    do COUNT(INNER); while (n-- != 0);
  }
}
// From each of two branches to each of two places, where the flags are looked at: one of the four
// ways is counted, and where the order of a run is known, it is one that is mostly taken.
__asm__(R"(
mix:
  xor %eax, %eax
1:
  inc %rax
  imul $0x1e3779b1, %rax, %rcx
  shr $16, %rcx
  bt $9, %rcx
  jc 3f
  cmp $140, %cl
  jb 4f
2:
  setc %dl
at_ONE: incq 24(%rdi)
  jmp 5f
3:
  cmp $140, %cl
  jb 2b
4:
  setc %dl
at_OTHER: incq 32(%rdi)
5:
  cmp %rsi, %rax
  jne 1b
  ret
)");
void mix(volatile unsigned long* counts, unsigned long end);
int main(int argc, char** argv) {
  (void)argv;
  unsigned long* counts =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (argc > 1) {
    spin(counts, 100000);
    mix(counts, 100000);
    return 0;
  }
  for (int i = 0; i < CHILDREN; ++i) {
    const pid_t child = fork();
    if (child == 0 && i % 2 == 0) spin(counts, ~0ul);
    if (child == 0) mix(counts, ~0ul);
    usleep(10000 + 13 * i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  for (int kind = 0; kind < KINDS; ++kind) printf("%lu\n", counts[kind]);
  return 0;
}
"""


def check(what, program):
    """Returns how many blocks lay apart."""
    file = path("killed.tally")
    done = accepted(["profile", "-o", file, "--", program], what, timeout=120)
    own = dict(zip(KINDS, map(int, done.stdout.split())))
    dump = accepted(["dump", "instructions", file, "--format=csv"], f"{what}, dump").stdout
    counted = {int(row["address"], 16): int(row["count"])
               for row in csv.DictReader(io.StringIO(dump.decode())) if row["module"] == program}
    for name, address in addresses(program).items():
        if counted.get(address) != own[name]:
            complain(f"{what}, {name}: the profile has {counted.get(address)}, it was {own[name]}")
    if len(own) != len(KINDS) or min(own.values()) < 1000 * CHILDREN:
        complain(f"{what}: the children have hardly run: {own}")
    print(what, own)
    with sqlite3.connect(file) as database:
        return int(database.execute("SELECT value FROM facts WHERE name = 'blocks_apart'")
                   .fetchone()[0])


for level in ("-O1", "-O2"):
    program = compile_c("killed" + level, SOURCE, level, "-no-pie", f"-DCHILDREN={CHILDREN}")
    os.environ["TALLY_CACHE"] = path("nothing" + level)
    if check(level, program) != 0:
        complain(f"{level}: a first run knows the order of blocks")
    os.environ["TALLY_CACHE"] = path("known" + level)
    accepted(["profile", "-o", path("once.tally"), "--", program, "once"], f"{level}, once")
    if check(f"{level}, in order", program) == 0:
        complain(f"{level}: a later run does not know the order of blocks")
finish()
