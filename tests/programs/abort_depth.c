// Claim: abort() at depth: death by SIGABRT, all open calls balanced.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static
// expect: signal=SIGABRT
#include <stdlib.h>
#include <unistd.h>

__attribute__((noinline)) static int down(volatile int* n) {
  if (--*n == 0) abort();
  return down(n) + 1;
}

int main(void) {
  volatile int n = 5;
  write(1, "going\n", 6);
  return down(&n);
}
