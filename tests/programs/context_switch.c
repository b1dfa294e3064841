// Claim: swapcontext (coroutines) is counted exactly, the frames left waiting on its stack too.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static
// oracle: step
#include <stdio.h>
#include <ucontext.h>

static ucontext_t host, guest;
static int turns;
__attribute__((noinline)) static void yield(void) { swapcontext(&guest, &host); }
static void body(void) {
  for (int i = 0; i < 6; i++) {
    turns += i;
    yield();
  }
}

int main(void) {
  static char stack[65536];
  getcontext(&guest);
  guest.uc_stack.ss_sp = stack;
  guest.uc_stack.ss_size = sizeof stack;
  guest.uc_link = &host;
  makecontext(&guest, body, 0);
  int rounds = 0;
  for (; rounds < 7; rounds++) swapcontext(&host, &guest);
  printf("%d %d\n", turns, rounds);
  return 0;
}
