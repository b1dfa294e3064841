// Claim: mutual recursion through three functions, one of them by pointer, is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long b(long n);
NOINLINE long c(long n);
static long (*volatile through)(long) = c;
NOINLINE long a(long n) { return n <= 0 ? 1 : b(n - 1) * 3 % 101 + 1; }
NOINLINE long b(long n) { return n <= 0 ? 2 : through(n - 2) + a(n / 2) % 11; }
NOINLINE long c(long n) { return n <= 0 ? 3 : a(n - 1) ^ b(n / 3); }

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  print_number("a", a(30));
  print_number("b", b(31));
  print_number("c", c(32));
  return 0;
}
