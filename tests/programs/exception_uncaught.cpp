// Claim: an exception nobody catches ends in abort, with the frames still open and balanced.
// build: gcc,clang O0,O2 pie static,dynamic
// dynamic: -static-libstdc++ -static-libgcc
// ci: gcc O2 pie static
// expect: signal=SIGABRT
#include <cstdio>
__attribute__((noinline)) static int bottom(int n) {
  if (n == 0) throw 42;
  return n;
}
__attribute__((noinline)) static int middle(int n) { return bottom(n) + 1; }

int main() {
  printf("%d\n", middle(1));
  fflush(stdout);
  printf("%d\n", middle(0));
  return 0;
}
