// Claim: the same with every signal ignored: first visits to code change no disposition.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static long fresh(long x) { return x * 7 % 5; }
static long (*volatile through)(long) = fresh;

int main(void) {
  for (int s = 1; s < 32; s++)
    if (s != SIGKILL && s != SIGSTOP) signal(s, SIG_IGN);
  long sum = through(3) + atol("17") + abs((int)through(-4));
  for (int s = 1; s < 32; s++) {
    struct sigaction action;
    if (s == SIGKILL || s == SIGSTOP) continue;
    if (sigaction(s, NULL, &action) != 0 || action.sa_handler != SIG_IGN) return s;
  }
  printf("%ld\n", sum);
  return 0;
}
