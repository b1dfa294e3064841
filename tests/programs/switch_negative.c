// Claim: a jump table whose lower bound is negative is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long f(long x) {
  volatile long r = 0;
  switch (x) {
    case -6: r = 1; break;
    case -5: r = 10; break;
    case -4: r = 100; break;
    case -3: r = 1000; break;
    case -2: r = 10000; break;
    case -1: r = 100000; break;
    case 0: r = 1000000; break;
    case 1: r = 10000000; break;
    default: r = 3;
  }
  return r;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = -9; i < 5; i++)
    for (long j = 0; j <= i + 9; j++) sum += f(i);
  print_number("sum", sum + f((long)(1ul << 63)) + f((long)~(1ul << 63)));
  return 0;
}
