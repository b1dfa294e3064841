// Claim: backtrace() inside a handler, through the signal's frame, sees what it sees natively.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// flags: -fasynchronous-unwind-tables
#define _GNU_SOURCE
#include <execinfo.h>
#include <signal.h>
#include <stdio.h>

static int main_too(int);
static void handler(int number, siginfo_t* info, void* context) {
  (void)number, (void)info, (void)context;
  void* frames[32];
  int n = backtrace(frames, 32);
  printf("%d frames:", n);
  for (int i = 0; i < n; i++) printf(" %ld", (long)((char*)frames[i] - (char*)main_too));
  puts("");
}
__attribute__((noinline)) static int fault(int n) {
  if (n == 0) raise(SIGUSR1);
  return n;
}
__attribute__((noinline)) static int outer(int n) { return fault(n) + 1; }
static int main_too(int n) { return outer(n) + 2; }

int main(void) {
  void* warm[2];
  backtrace(warm, 2);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGUSR1, &action, NULL);
  return main_too(0) != 3;
}
