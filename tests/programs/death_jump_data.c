// Claim: death by a call into data that is not executable.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGSEGV
#include "include/nolibc.h"

NOINLINE long last(long n) {
  static long data[4]; HIDE(n); ((void (*)(void))(data + n))();
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
