// Claim: a count that sits in a loop's register or induction variable is not lost when the program
// ends inside the loop.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
// expect: signal=SIGSEGV
#include "include/nolibc.h"

NOINLINE long sum(const volatile long* p) {
  long s = 0;
  for (;; p++) s += *p;  // runs off the end of the mapping
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long p = syscall6(9, 0, 2 * 4096, 3, 0x22, -1, 0);
  CHECK(syscall3(10, p + 4096, 4096, 0) == 0);
  print("running\n");
  print_number("never", sum((const volatile long*)p));
  return 0;
}
