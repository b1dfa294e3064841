// Claim: counts of simple loops (while, do, for; zero, one and many iterations) are exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
// count: body = 1000
#include "include/nolibc.h"

NOINLINE long body(long i) { return i * 3 + 1; }

NOINLINE long sum_to(long n) {
  long sum = 0;
  for (long i = 0; i < n; i++) sum += body(i);
  return sum;
}

NOINLINE long collatz(long n) {
  long steps = 0;
  do {
    n = n % 2 ? 3 * n + 1 : n / 2;
    steps++;
  } while (n != 1);
  return steps;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long s = sum_to(0) + sum_to(1) + sum_to(999);
  print_number("sum", s);
  print_number("collatz", collatz(27));
  while (s > 1000) s -= 777;
  print_number("rest", s);
  return 0;
}
