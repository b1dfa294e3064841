#!/usr/bin/env python3
"""A first run that begins with returns as jumps pairs them with calls once they turn out hard to
foretell, and what was translated before goes on beside what is translated then: calls that are open
at that moment, recursion, longjmp, callbacks, `ret n`, a timer's handler, fork, threads behind it.
What a program counts itself, in memory that outlives it, is what the profile says, also of children
that are killed; and the counts of its own code are those of a run that is not changed."""
import subprocess

import processes
from own_counts import KILL_CHILDREN, CountedRun, symbols
from refusal import compile_c, complain, finish, path

SITES, KILLED = 12, 20
SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static volatile unsigned long* counts;
#define COUNT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": incq %0" \
                   : "+m"(counts[number]) : : "cc")
static jmp_buf out;
static unsigned long state = 88172645463325252ul;
APART static unsigned long next(void) {
  COUNT(0);
  for (int i = 0; i < 5; ++i) state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
#define CALLER(number) \
  APART static unsigned long caller_##number(unsigned long n) { \
    COUNT(1##number); \
    return next() + n; \
  }
CALLERS
static unsigned long (*const callers[])(unsigned long) = {NAMES};
APART static unsigned long deep(unsigned long n, int jump) {
  COUNT(1);
  if (n == 0) {
    COUNT(2);
    if (jump) longjmp(out, 1);
    return next();
  }
  const unsigned long below = deep(n - 1, jump) + next();
  COUNT(3);
  return below;
}
// Takes its argument with it.
unsigned long popper(void);
__asm__(".text\n.type popper, @function\npopper:\n.cfi_startproc\n"
        "mov counts(%rip), %rax\n.globl at_4\nat_4: incq 32(%rax)\nret $8\n.cfi_endproc\n"
        ".size popper, .-popper\n");
APART static void pop(void) {
  COUNT(5);
  __asm__ volatile("lea -128(%%rsp), %%rsp\n.cfi_adjust_cfa_offset 128\n"
                   "push $1\n.cfi_adjust_cfa_offset 8\ncall popper\n"
                   ".cfi_adjust_cfa_offset -8\nlea 128(%%rsp), %%rsp\n"
                   ".cfi_adjust_cfa_offset -128" : : : "rax", "cc", "memory");
}
static int compare(const void* a, const void* b) {
  COUNT(6);
  return (int)(next() & 1) + (*(const int*)a < *(const int*)b ? -1 : 1);
}
static void tick(int signal) {
  (void)signal;
  COUNT(7);
}
APART static void work(int round, int jumps) {
  int numbers[40] = {0};
  if (setjmp(out) == 0) {
    for (int i = 0; i < 400; ++i) callers[next() % SITES](i);
    EACH
    deep(20 + round % 7, jumps && round % 5 == 0);
  }
  COUNT(8);
  pop();
  for (int i = 0; i < 40; ++i) numbers[i] = (int)next();
  qsort(numbers, 40, sizeof *numbers, compare);
}
static void* other(void* unused) {
  for (int i = 0; i < 20000; ++i) {
    COUNT(9);
    caller_02(i);
  }
  return unused;
}
KILL_CHILDREN
static const char* mode_of(int i) {
  (void)i;
  return "endless";
}
// At the bottom of a deep recursion, most of which was called while returns were jumps.
APART static void below(int depth, int jumps) {
  if (depth > 0) {
    below(depth - 1, jumps);
    COUNT(20);
    return;
  }
  for (int round = 0; round < ROUNDS; ++round) work(round, jumps);
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  if (strcmp(argv[2], "endless") == 0) {
    for (int round = 0;; ++round) {
      work(round, 0);
      if (round == 4 && write(1, "", 1) != 1) return 3;
    }
  }
  if (strcmp(argv[2], "kill") == 0) return kill_children(argv, mode_of), 0;
  if (strcmp(argv[2], "timer") == 0) {
    struct itimerval every = {{0, 3000}, {0, 3000}};
    signal(SIGALRM, tick);
    setitimer(ITIMER_REAL, &every, NULL);
  }
  below(30, 1);
  const pid_t child = fork();
  for (int round = 0; child == 0 && round < 20; ++round) work(round, 1);
  if (child == 0) _exit(0);
  waitpid(child, NULL, 0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL) != 0) return 4;
  pthread_join(thread, NULL);
  for (int round = 0; round < 20; ++round) work(round, 1);
  return 0;
}
"""


def source():
    text = SOURCE.replace("KILL_CHILDREN", KILL_CHILDREN).replace(
        "CALLERS", "".join(f"CALLER({i:02})\n" for i in range(SITES)))
    text = text.replace("NAMES", ", ".join(f"caller_{i:02}" for i in range(SITES)))
    text = text.replace("EACH", "".join(f"caller_{i:02}({i});" for i in range(SITES)))
    return text


def check(program, mode, *options, paired):
    """`paired`: how many of the runs ended with returns in pairs, at least and at most."""
    run = CountedRun(program, mode, 512, *options, env=dict(processes.ENVIRONMENT, TALLY_CACHE=""))
    pairs, late = run.fact("returns_paired"), run.fact("procedures_paired_late")
    print(f"{run.what}: paired in {pairs}, {run.fact('procedures_renewed')} translated again, "
          f"{late} of them in pairs, {run.own[8]} rounds")
    if (late > 0) != (paired[1] > 0):
        complain(f"{run.what}: {late} procedures came to pairs late")
    if not paired[0] <= pairs <= paired[1]:
        complain(f"{run.what}: {pairs} runs ended in pairs, expected {paired}")
    if run.own[8] < 100 or run.own[0] < 40000:
        complain(f"{run.what}: the program has hardly run: {run.own[:10]}")
    return run


def own_rows(program, flags, rows):
    """Of what the source defines.  What a static program's C library does in it is by lot: whether
    `pthread_join` has to wait, for one."""
    subprocess.run(["gcc", "-w", "-c", program + ".c", "-o", program + ".o", *flags], check=True)
    whole = symbols(program)
    ranges = [whole[name] for name in symbols(program + ".o") if name in whole]
    own = [row for row in rows
           if any(at <= int(row["address"], 16) < at + size for at, size in ranges)]
    if len(own) < 100:
        complain(f"{program}: only {len(own)} of {len(rows)} rows are of its own code")
    return own


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    flags = (level, *flags, "-pthread", f"-DSITES={SITES}", f"-DKILLED={KILLED}", "-DROUNDS=6000")
    program = compile_c("returns" + "".join(flags[:-4]), source(), *flags)
    never = check(program, "whole", "--no-opt=paired", paired=(0, 0))
    # The child of fork, too.
    changed = check(program, "whole", paired=(2, 2))
    if own_rows(program, flags, changed.rows) != own_rows(program, flags, never.rows):
        complain(f"{changed.what}: other counts than without pairs")
    check(program, "timer", paired=(2, 2))
    check(program, "whole", "--no-opt=renewal", paired=(0, 0))
    for options in (("--stress-renewal",), ("--stress-renewal", "--stress-defer"),
                    ("--stress-renewal", "--no-opt=low32,hashes")):
        check(program, "whole", *options, paired=(2, 2))
    check(program, "kill", "--stress-renewal", paired=(KILLED // 2, 2 * KILLED + 1))
finish()
