// Claim: a coroutine whose stack is copied and put back goes on twice from the same place: who is
// active there was called by nobody the second time, which is named.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// inexact: stacks
// unbalanced: the procedures that go on twice were entered once
// oracle: output
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { kBytes = 32768 };
static ucontext_t host, guest, again;
static char stack[kBytes], copy[kBytes];
static volatile int turns;

__attribute__((noinline)) static void rest(int n) {
  if (n > 0) rest(n - 1);
  else swapcontext(&guest, &host);
  turns++;
}

static void body(void) {
  rest(3);
  rest(1);
}

int main(void) {
  getcontext(&guest);
  guest.uc_stack.ss_sp = stack;
  guest.uc_stack.ss_size = kBytes;
  guest.uc_link = &host;
  makecontext(&guest, body, 0);
  swapcontext(&host, &guest);
  memcpy(copy, stack, kBytes);
  again = guest;
  again.uc_mcontext.fpregs = &again.__fpregs_mem;
  swapcontext(&host, &guest);
  memcpy(stack, copy, kBytes);
  swapcontext(&host, &again);
  printf("%d\n", turns);
  return 0;
}
