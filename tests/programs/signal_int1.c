// Claim: `int1` raises SIGTRAP behind itself, without a cause that would tell it from the end of a
// single step; its handler runs each time.
// needs: int1
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// count: work = 10
// count: handler = 10
#include <signal.h>
#include <stdio.h>

static volatile long handled, worked;
__attribute__((noinline)) void handler(int number) { handled += number == SIGTRAP; }
__attribute__((noinline)) void work(void) { worked++; }

int main(void) {
  signal(SIGTRAP, handler);
  for (int i = 0; i < 10; i++) {
    __asm__ volatile("nop\n .byte 0xf1\n nop" ::: "memory");
    work();
  }
  printf("%ld %ld\n", handled, worked);
  return 0;
}
