#!/usr/bin/env python3
"""Hot procedures are translated again in mid-run, and nothing is lost: what a program counts
itself, in memory that outlives it, is what the profile says of the instructions that did.  There
are open calls, recursion that is left by longjmp, an interpreter that never returns, callbacks from
the C library, a timer's handler, and at the end a thread.  It runs to its end, and it is killed
from outside, again and again, while procedures move."""
from own_counts import CountedRun
from refusal import compile_c, complain, finish

KINDS = ("DEEP", "ODD", "BOTTOM", "JUMPED", "ADD", "SUB", "XOR", "ROTATE", "LESS", "MORE", "AGAIN",
         "COMPARED", "TICKED", "ROUND", "THREAD")
ROUNDS, KILLED = 3000, 12
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
enum { DEEP, ODD, BOTTOM, JUMPED, ADD, SUB, XOR, ROTATE, LESS, MORE, AGAIN, COMPARED, TICKED, ROUND,
       THREAD, KINDS };
static volatile unsigned long* counts;
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": incq %0" : "+m"(counts[kind]) : : "cc")
#define APART __attribute__((noinline, noclone))
static jmp_buf out;
static unsigned long state = 88172645463325252ul;
static unsigned long next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
APART static unsigned long deep(int n, int jump) {
  COUNT(DEEP);
  if (n == 0) {
    COUNT(BOTTOM);
    if (jump) longjmp(out, 1);
    return next();
  }
  unsigned long below = deep(n - 1, jump);
  if (below & 1) COUNT(ODD);
  return below >> 1;
}
APART static unsigned long interpret(unsigned long steps) {
  static unsigned char code[256];
  unsigned long a = 0, b = next();
  for (int i = 0; i < 256; ++i) code[i] = (unsigned char)(next() % 7);
  unsigned char pc = 0;
  while (steps-- > 0) {
    switch (code[pc++]) {
      case 0: COUNT(ADD); a += b; break;
      case 1: COUNT(SUB); a -= 3; break;
      case 2: COUNT(XOR); b ^= a; break;
      case 3: COUNT(ROTATE); b = b << 9 | b >> 55; break;
      case 4: COUNT(LESS); if (a < b) pc += 3; break;
      case 5: COUNT(MORE); if (b & 16) a >>= 1; break;
      default: COUNT(AGAIN); if (steps & 1) pc -= 2; break;
    }
  }
  return a ^ b;
}
static int compare(const void* a, const void* b) {
  COUNT(COMPARED);
  const unsigned long x = *(const unsigned long*)a, y = *(const unsigned long*)b;
  return x < y ? -1 : x > y;
}
static void tick(int signal) {
  (void)signal;
  COUNT(TICKED);
}
APART static void work(int round, int jumps) {
  unsigned long numbers[100];
  COUNT(ROUND);
  if (setjmp(out) == 0) {
    for (int i = 0; i < 20; ++i) deep(i + 5, jumps && i == 19 && round % 3 == 0);
  } else {
    COUNT(JUMPED);
  }
  for (int i = 0; i < 100; ++i) numbers[i] = next();
  qsort(numbers, 100, sizeof *numbers, compare);
  interpret(10000 + numbers[50] % 1000);
}
static void* other(void* unused) {
  for (int i = 0; i < 100000; ++i) COUNT(THREAD);
  return unused;
}
static void begin_timer(void) {
  struct itimerval every = {{0, 3000}, {0, 3000}};
  signal(SIGALRM, tick);
  setitimer(ITIMER_REAL, &every, NULL);
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  if (strcmp(argv[2], "endless") == 0) {
    for (int round = 0;; ++round) work(round, 1);
  }
  if (strcmp(argv[2], "kill") == 0) {
    for (int i = 0; i < KILLED; ++i) {
      const pid_t child = fork();
      if (child == 0) execl(argv[0], argv[0], argv[1], "endless", NULL);
      usleep(60000 + 17003 * i);
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
    }
    return 0;
  }
  if (strcmp(argv[2], "timer") == 0) begin_timer();
  for (int round = 0; round < ROUNDS; ++round) work(round, 1);
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL) != 0) return 3;
  pthread_join(thread, NULL);
  for (int round = 0; round < 10; ++round) work(round, 1);
  return 0;
}
"""


def check(program, mode, *options):
    """Returns how many procedures were translated again."""
    run = CountedRun(program, mode, 512, "--no-opt=recall", *options, number_of=KINDS.index)
    own = dict(zip(KINDS, run.own))
    if own["ROUND"] < 20 or own["ADD"] == 0 or own["JUMPED"] == 0:
        complain(f"{run.what}: the program has hardly run: {own}")
    renewed = run.fact("procedures_renewed")
    print(f"{run.what}: {renewed} translated again, {own['ROUND']} rounds, {own['TICKED']} ticks")
    return renewed


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    program = compile_c("renewed" + "".join((level, *flags)), SOURCE, level, *flags,
                        f"-DROUNDS={ROUNDS}", f"-DKILLED={KILLED}", "-pthread")
    for mode in ("whole", "timer", "kill"):
        if check(program, mode) < 3:
            complain(f"{level} {flags} {mode}: the hot procedures stay where they were")
    if check(program, "whole", "--stress-renewal") < 30:
        complain(f"{level} {flags}: what has run is not translated again")
    for mode in ("whole", "kill"):
        check(program, mode, "--stress-renewal", "--no-opt=paired,low32,hashes")
    if check(program, "whole", "--no-opt=renewal") != 0:
        complain(f"{level} {flags}: translated again though that is switched off")
finish()
