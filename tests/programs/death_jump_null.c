// Claim: death by a jump to address 0: the jump counts, nothing after it.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGSEGV
#include "include/nolibc.h"

NOINLINE long last(long n) {
  void (*volatile nowhere)(void) = 0; nowhere();
  return n;
}
NOINLINE long down(long n) {
  long r = n ? down(n - 1) : last(n);
  BARRIER();
  return r + n;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  print("before\n");
  print_number("never", down(6));
  return 0;
}
