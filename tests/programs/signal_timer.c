// Claim: a timer at 1 kHz over loops of calls, returns, indirect calls and system calls changes no
// count of the loops.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// varies: how often the timer strikes
// count: counted_here = 500000
// count: called_here = 1500000
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile unsigned long ticks;
static void handler(int number) {
  (void)number;
  ticks++;
}

__attribute__((noinline)) static long called(long x) {
  __asm__ volatile(".globl called_here\ncalled_here: add $3, %0" : "+r"(x)::"cc");
  return x;
}
__attribute__((noinline)) static long twice(long (*f)(long), long x) { return f(f(x)); }

__attribute__((noinline)) static long loop(long (*volatile* f)(long)) {
  long sum = 0;
  for (long i = 0; i < 500000; i++) {
    __asm__ volatile(".globl counted_here\ncounted_here: add $1, %0" : "+r"(sum)::"cc");
    sum = twice(*f, sum);
    sum = called(sum);
    if (i % 16 == 0) sum += syscall(SYS_getppid) > 0;
  }
  return sum;
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  long (*volatile f)(long) = called;
  long sum = loop(&f);
  while (ticks < 5) usleep(100);
  memset(&timer, 0, sizeof timer);
  setitimer(ITIMER_REAL, &timer, NULL);
  printf("%ld\n", sum);
  return 0;
}
