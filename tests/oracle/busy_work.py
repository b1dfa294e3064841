"""Work that programs of tests do, in any number of threads, and count as they go (own_counts.py):
recursion that is left by longjmp, an interpreter that never returns, callbacks from the C library,
and what their handlers and mains add to it."""
from own_counts import CountedRun
from refusal import complain

KINDS = ("DEEP", "ODD", "BOTTOM", "JUMPED", "ADD", "SUB", "XOR", "ROTATE", "LESS", "MORE", "AGAIN",
         "COMPARED", "TICKED", "ROUND")

SOURCE = r"""
#define _GNU_SOURCE
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
enum { KINDS };
static volatile unsigned long* counts;
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": lock incq %0" : "+m"(counts[kind]) : : "cc")
#define APART __attribute__((noinline, noclone))
static int open_counts(const char* path) {
  const int file = open(path, O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return counts != MAP_FAILED;
}
static __thread jmp_buf out;
static __thread unsigned long state = 88172645463325252ul;
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
  unsigned char code[256];
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
static void begin_timer(void) {
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  const struct itimerval every = {{0, 3000}, {0, 3000}};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
}
APART static void work(int round, unsigned long steps) {
  unsigned long numbers[100];
  COUNT(ROUND);
  if (setjmp(out) == 0) {
    for (int i = 0; i < 20; ++i) deep(i + 5, i == 19 && round % 3 == 0);
  } else {
    COUNT(JUMPED);
  }
  for (int i = 0; i < 100; ++i) numbers[i] = next();
  qsort(numbers, 100, sizeof *numbers, compare);
  interpret(steps + numbers[50] % 1000);
}
"""


def source(*more_kinds):
    return SOURCE.replace("KINDS", ", ".join((*KINDS, *more_kinds)))


class BusyRun(CountedRun):
    """One of a program made of that; `own` by the names of the kinds."""
    def __init__(self, program, mode, more_kinds, *options):
        kinds = (*KINDS, *more_kinds)
        super().__init__(program, mode, 512, "--no-opt=recall", *options, number_of=kinds.index)
        self.own_of = dict(zip(kinds, self.own))
        self.renewed = self.fact("procedures_renewed")
        if self.own_of["ROUND"] < 20 or self.own_of["ADD"] == 0 or self.own_of["JUMPED"] == 0:
            complain(f"{self.what}: the program has hardly run: {self.own_of}")
        print(f"{self.what}: {self.renewed} translated again, {self.own_of['ROUND']} rounds, "
              f"{self.own_of['TICKED']} ticks")
