// Claim: death by overflow of the stack, at whatever depth that is.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGSEGV
#include "include/nolibc.h"

NOINLINE long last(long n) {
  volatile char big[4096]; big[n & 4095] = (char)n; n = last(n + 1) + big[0];
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
