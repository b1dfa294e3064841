// Claim: pointers to nested functions: GCC writes a trampoline to the stack and calls it there.
// build: gcc O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; gcc O0 nopie static
// flags: -z execstack
#include <stdio.h>

static int apply(int (*f)(int), int x) {
  return f(x);
}

static int outer(int base, int depth) {
  int inner(int x) { return x + base; }
  int sum = 0;
  for (int i = 0; i < 10; i++) sum += apply(inner, i);
  return depth > 0 ? sum + outer(base * 2, depth - 1) : sum;
}

int main(void) {
  int (*volatile run)(int, int) = outer;
  printf("%d\n", run(3, 5));
  printf("%d\n", run(4, 2));
  return 0;
}
