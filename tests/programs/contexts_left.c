// Claim: coroutines that are never ended, and some never begun, wait on their stacks at the end,
// at different depths: the calls that are open there are on the ledger, every count is exact.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: step
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { kGuests = 7 };
static ucontext_t host, guests[kGuests];
static volatile int turns;

__attribute__((noinline)) static int deeper(int id, int n) {
  if (n == 0) {
    swapcontext(&guests[id], &host);
    return 1;
  }
  return deeper(id, n - 1) + 1;
}

static void body(int id) {
  for (int i = 0;; i++) turns += deeper(id, i % (id + 1));
}

int main(void) {
  for (int i = 0; i < kGuests; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = malloc(40000);
    guests[i].uc_stack.ss_size = 40000;
    guests[i].uc_link = NULL;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
  }
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < kGuests - 1; i++) swapcontext(&host, &guests[i]);
  }
  printf("%d\n", turns);
  return 0;
}
