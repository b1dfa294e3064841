// Claim: a signal's handler switches stacks away and back (a scheduler that takes the processor
// away), and some of what it interrupted is never gone back to.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: step
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { kGuests = 3 };
static ucontext_t host, guests[kGuests];
static volatile int turns, current;

static void handler(int signal) {
  (void)signal;
  swapcontext(&guests[current], &host);
}

static void body(int id) {
  for (int i = 0; i < 3; i++) {
    turns += id + 1;
    raise(SIGUSR1);
  }
}

int main(void) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_NODEFER};
  sigaction(SIGUSR1, &action, NULL);
  for (int i = 0; i < kGuests; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = malloc(60000);
    guests[i].uc_stack.ss_size = 60000;
    guests[i].uc_link = &host;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
  }
  for (int round = 0; round < 4; round++) {
    for (current = 0; current < kGuests; current++) {
      if (round > 2 - current) continue;
      swapcontext(&host, &guests[current]);
    }
  }
  printf("%d\n", turns);
  return 0;
}
