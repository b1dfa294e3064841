// Claim: variable-length arrays, alloca and a large stack (pages touched one by one) work.
// build: gcc,clang O0,O2 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long vla(long n) {
  volatile long a[n];
  for (long i = 0; i < n; i++) a[i] = i ^ n;
  return a[n / 2] + a[n - 1];
}
NOINLINE long grow(long n) {
  volatile char* p = __builtin_alloca(4096 * (n + 1));
  p[0] = (char)n;
  p[4096 * n] = 1;
  long below = n < 40 ? grow(n + 1) : 0;
  return below + p[0] + p[4096 * n];
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long n = 1; n < 30; n++) sum += vla(n);
  print_number("vla", sum);
  print_number("grow", grow(0));
  return 0;
}
