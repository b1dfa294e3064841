// Claim: an indirect call with 300 targets has exact edges.
// build: gcc,clang O0,O2 pie,nopie nolibc
#include "include/nolibc.h"

typedef long Function(long);
#define F(n) \
  static NOINLINE long f##n(long x) { return x * (n + 1) + n; }
#define F10(n) F(n##0) F(n##1) F(n##2) F(n##3) F(n##4) F(n##5) F(n##6) F(n##7) F(n##8) F(n##9)
#define F100(n) F10(n##0) F10(n##1) F10(n##2) F10(n##3) F10(n##4) F10(n##5) F10(n##6) F10(n##7) F10(n##8) F10(n##9)
#define T(n) f##n,
#define T10(n) T(n##0) T(n##1) T(n##2) T(n##3) T(n##4) T(n##5) T(n##6) T(n##7) T(n##8) T(n##9)
#define T100(n) T10(n##0) T10(n##1) T10(n##2) T10(n##3) T10(n##4) T10(n##5) T10(n##6) T10(n##7) T10(n##8) T10(n##9)
F100(1) F100(2) F100(3)
static Function* volatile table[] = {T100(1) T100(2) T100(3)};

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = 0; i < 900; i++) sum = (sum + table[i * i % 300](i)) % 1000003;
  for (long i = 0; i < 300; i++) sum = (sum + table[i](i)) % 1000003;
  print_number("sum", sum);
  return 0;
}
