// Claim: an indirect call with 1 target has exact edges.
// build: gcc,clang O0,O2 pie,nopie nolibc
#include "include/nolibc.h"

typedef long Function(long);
#define F(n) \
  static NOINLINE long f##n(long x) { return x * (n + 1) + n; }
F(0)
static Function* volatile table[] = {f0};

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = 0; i < 200; i++) sum = (sum + table[i * i % 1](i)) % 1000003;
  for (long i = 0; i < 1; i++) sum = (sum + table[i](i)) % 1000003;
  print_number("sum", sum);
  return 0;
}
