// Claim: a jump table with holes (entries that are the default) is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE int f(unsigned x) {
  volatile int r = 1;
  switch (x) {
    case 10: r = 2; break;
    case 11: r = 3; break;
    case 13: r = 5; break;
    case 16: case 17: r = 7; break;
    case 19: r = 11; break;
    case 20: r = 13; break;
    case 22: r = 17; break;
    case 25: r = 19; break;
    case 26: r = 23; break;
  }
  return r;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long product = 1;
  for (unsigned i = 0; i < 30; i++) product = product * f(i) % 1000003;
  print_number("product", product);
  return 0;
}
