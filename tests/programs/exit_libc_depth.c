// Claim: exit() from depth, with atexit handlers that call back into the program.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static
// expect: status=7
#include <stdio.h>
#include <stdlib.h>

static int depth;
static void first(void) { printf("first %d\n", depth); }
static void second(void) { printf("second %d\n", depth); }
__attribute__((noinline)) static int down(int n) {
  depth++;
  if (n == 0) exit(7);
  return down(n - 1) + depth;
}

int main(void) {
  atexit(first);
  atexit(second);
  return down(20);
}
