// Claim: a dense switch (jump table; PIC: relative offsets, non-PIC: absolute addresses) with a
// default beyond both ends has exact edges.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE int f(int x) {
  volatile int r = 0;
  switch (x) {
    case 0: r = 5; break;
    case 1: r = 17; break;
    case 2: r = x + 3;  // falls through
    case 3: r += 9; break;
    case 4: r = -1; break;
    case 5: return 99;
    case 6: r = x * x; break;
    case 7: r = x << 3; break;
    case 8: r = 2; break;
    default: r = 1000;
  }
  return r;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (int i = -3; i < 40; i++) sum += f(i % 13);
  print_number("sum", sum);
  return 0;
}
