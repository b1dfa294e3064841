// Claim: a child of fork goes on with its copies of the stacks its parent has left, the parent with
// its own.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { kGuests = 4 };
static ucontext_t host, guests[kGuests];
static volatile int turns;

__attribute__((noinline)) static void rest(int id, int n) {
  if (n > 0) rest(id, n - 1);
  else swapcontext(&guests[id], &host);
  turns++;
}

static void body(int id) {
  for (int i = 0; i < 3; i++) rest(id, i);
}

int main(void) {
  for (int i = 0; i < kGuests; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = malloc(40000);
    guests[i].uc_stack.ss_size = 40000;
    guests[i].uc_link = &host;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
    if (i > 0) swapcontext(&host, &guests[i]);
  }
  swapcontext(&host, &guests[3]);
  const pid_t child = fork();
  for (int i = 0; i < kGuests - 1; i++) {
    for (int k = 0; k < (child == 0 ? 4 - (i > 0) : i); k++) swapcontext(&host, &guests[i]);
  }
  if (child == 0) {
    printf("child %d\n", turns);
    return 3;
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("parent %d %d\n", turns, WEXITSTATUS(status));
  return 0;
}
