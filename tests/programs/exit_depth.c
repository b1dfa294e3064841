// Claim: exit from the bottom of a call chain leaves all open blocks balanced.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: status=42
// count: down = 12
#include "include/nolibc.h"

NOINLINE long down(long n) {
  if (n == 0) finish(42);
  long r = down(n - 1);
  BARRIER();
  return r * 2;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  print("before\n");
  down(11);
  print("never\n");
  return 0;
}
