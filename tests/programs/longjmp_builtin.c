// Claim: __builtin_setjmp/longjmp (no libc, a bare indirect jump out of several frames) is balanced.
// build: gcc,clang O0,O2 pie,nopie nolibc
#include "include/nolibc.h"

static void* buffer[5];
static volatile long count;
NOINLINE void inner(long n) {
  count++;
  if (n & 1) __builtin_longjmp(buffer, 1);
  BARRIER();
}
NOINLINE void middle(long n) {
  inner(n);
  BARRIER();
  count += 100;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  for (volatile long i = 0; i < 9; i++) {
    if (__builtin_setjmp(buffer) == 0)
      middle(i);
    else
      count += 10000;
  }
  print_number("count", count);
  return 0;
}
