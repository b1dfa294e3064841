// Claim: a sparse switch (a tree of comparisons) is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long f(long x) {
  volatile long r = x;
  switch (x) {
    case 1: r = 11; break;
    case 100: r = 12; break;
    case 10000: r = 13; break;
    case 1000000: r = 14; break;
    case 100000000: r = 15; break;
    case 10000000000: r = 16; break;
    case -1000000007: r = 17; break;
    default: r = 0;
  }
  return r;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = 1; i < 1000000000000; i *= 10) sum += f(i) * (i % 97);
  print_number("sum", sum + f(-1000000007));
  return 0;
}
