// Claim: code that is first reached late, after much else ran, is counted from its first execution.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
// count: late = 3
#include "include/nolibc.h"

static volatile long sink;
__attribute__((cold)) NOINLINE void late(long n) { sink += n * 1000; }
NOINLINE void step(long n) {
  if (__builtin_expect(n % 1000 == 999, 0)) late(n);
  sink++;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  for (long i = 0; i < 3000; i++) step(i);
  print_number("sink", sink);
  return 0;
}
