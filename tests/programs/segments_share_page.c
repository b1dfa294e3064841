// Claim: a program whose read-only data and text share a page of the file, at two addresses, as lld
// lays them out.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic; clang O2 nopie dynamic
// flags: -fuse-ld=lld
// oracle: step
#include <stdio.h>

static const char words[] = "counted";

__attribute__((noinline)) int twice(int x) { return x + x; }

int main(void) {
  int sum = 0;
  for (int i = 0; i < 10; i++) sum += twice(words[i % 7]);
  printf("%d\n", sum);
  return 0;
}
