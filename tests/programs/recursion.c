// Claim: recursion (fib, ackermann, one that is 2000 deep) is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
// count: deep = 2001
#include "include/nolibc.h"

NOINLINE long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
NOINLINE long ackermann(long m, long n) {
  if (m == 0) return n + 1;
  if (n == 0) return ackermann(m - 1, 1);
  return ackermann(m - 1, ackermann(m, n - 1));
}
NOINLINE long deep(volatile long* n) {
  if (*n == 0) return 0;
  --*n;
  long below = deep(n);
  BARRIER();
  return below + 1;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  volatile long n = 2000;
  print_number("fib", fib(12));
  print_number("ackermann", ackermann(2, 5));
  print_number("deep", deep(&n));
  return 0;
}
