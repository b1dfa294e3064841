// Claim: death by SIGFPE (division by zero) in the middle of a block.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: signal=SIGFPE
#include "include/nolibc.h"

NOINLINE long last(long n) {
  __asm__ volatile("mov $7, %%eax\n xor %%edx, %%edx\n idiv %%ecx\n inc %%eax" ::"c"(n) : "eax", "edx");
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
