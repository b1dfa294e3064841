// Claim: sigaction returns to the program the handlers it set, by address; fork and sigaltstack
// settings read back, too.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static void one(int n) { (void)n; }
static void two(int n, siginfo_t* i, void* c) { (void)n, (void)i, (void)c; }

int main(void) {
  static char alternate[16384];
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate}, old;
  if (sigaltstack(&stack, NULL) || sigaltstack(NULL, &old)) return 1;
  if (old.ss_sp != alternate || old.ss_size != sizeof alternate) return 2;
  if (signal(SIGUSR1, one) != SIG_DFL) return 3;
  if (signal(SIGUSR1, SIG_IGN) != one) return 4;
  if (signal(SIGUSR1, one) != SIG_IGN) return 5;
  struct sigaction action = {.sa_sigaction = two, .sa_flags = SA_SIGINFO | SA_ONSTACK}, read;
  if (sigaction(SIGUSR1, &action, &read) || read.sa_handler != one) return 6;
  if (sigaction(SIGUSR1, NULL, &read) || read.sa_sigaction != two) return 7;
  if ((read.sa_flags & ~0x04000000) != (SA_SIGINFO | SA_ONSTACK)) return 8;
  puts("passed");
  return 0;
}
