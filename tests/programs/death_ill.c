// Claim: death by SIGILL (ud2) at depth.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGILL
#include "include/nolibc.h"

NOINLINE long last(long n) {
  __asm__ volatile("nop\n ud2\n nop");
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
