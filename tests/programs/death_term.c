// Claim: kill(self, SIGTERM) without a handler.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGTERM
#include "include/nolibc.h"

NOINLINE long last(long n) {
  syscall3(62, syscall3(39, 0, 0, 0), 15, 0);
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
