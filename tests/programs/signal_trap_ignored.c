// Claim: a program that ignores or blocks SIGTRAP keeps it so while other signals are delivered
// anywhere in its code.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

static volatile unsigned long ticks;
static void handler(int number) {
  (void)number;
  ticks++;
}
__attribute__((noinline)) static long leaf(long x) { return x + 1; }
static long (*volatile pointer)(long) = leaf;

int main(void) {
  signal(SIGTRAP, SIG_IGN);
  signal(SIGALRM, handler);
  struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  long x = 0;
  while (ticks < 100) x = pointer(leaf(x));
  sigset_t set, now;
  sigemptyset(&set);
  sigaddset(&set, SIGTRAP);
  struct sigaction action;
  sigaction(SIGTRAP, NULL, &action);
  raise(SIGTRAP);
  signal(SIGTRAP, handler);
  sigprocmask(SIG_BLOCK, &set, NULL);
  raise(SIGTRAP);
  while (ticks < 200) x = pointer(leaf(x));
  sigpending(&now);
  printf("%d %d\n", action.sa_handler == SIG_IGN, sigismember(&now, SIGTRAP));
  return 0;
}
