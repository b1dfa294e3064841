// Claim: tail calls (jmp to another procedure; direct, indirect, conditional, mutually recursive)
// keep calls, returns and entries exact.
// build: gcc,clang O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

typedef long Function(long, long);
NOINLINE long finish_up(long n, long acc) { return n + acc * 2; }
NOINLINE long odd(long n, long acc);
NOINLINE long even(long n, long acc) { return n == 0 ? finish_up(n, acc) : odd(n - 1, acc + n); }
NOINLINE long odd(long n, long acc) { return n == 0 ? -1 : even(n - 1, acc ^ n); }
static Function* volatile table[] = {finish_up, even, odd};
NOINLINE long jump_through(long n, long which) { return table[which](n, which); }
NOINLINE long last(long n) { return jump_through(n, n % 3); }

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = 0; i < 40; i++) sum += last(i);
  print_number("sum", sum);
  print_number("even", even(100, 0));
  return 0;
}
