// Claim: getcontext and setcontext within one stack (a loop, an escape from deep below) and several
// coroutines with stacks of their own that all run to their end: balanced, nothing inexact.  (Who goes
// behind getcontext's call by setcontext enters its block out of turn: the stepper knows no such.)
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// oracle: output
#include <stdio.h>
#include <ucontext.h>

static ucontext_t host, guests[3], mark;
static volatile int rounds, turns;

__attribute__((noinline)) static int escape(int n) {
  if (n == 0) setcontext(&mark);
  return escape(n - 1) + 1;
}

static void body(int id) {
  for (int i = 0; i < 4; i++) {
    turns += id;
    swapcontext(&guests[id], &host);
  }
}

int main(void) {
  getcontext(&mark);
  if (rounds++ < 5) escape(rounds);
  static char stacks[3][65536];
  for (int i = 0; i < 3; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = stacks[i];
    guests[i].uc_stack.ss_size = sizeof stacks[i];
    guests[i].uc_link = &host;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
  }
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3; i++) swapcontext(&host, &guests[i]);
  }
  printf("%d %d\n", rounds, turns);
  return 0;
}
