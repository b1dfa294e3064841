// Claim: death by a signal within a handler is balanced; SA_RESETHAND lets the second one kill.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// expect: signal=SIGSEGV
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

static volatile int times;
__attribute__((noinline)) static void fault(volatile int* at) {
  times++;
  *at = times;
}
static void handler(int number) {
  (void)number;
  printf("once %d\n", times);
  fflush(stdout);
  fault((int*)32);
}
int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESETHAND | SA_NODEFER;
  sigaction(SIGSEGV, &action, NULL);
  fault((int*)16);
  return 0;
}
