// Claim: twenty thousand signals are handled, each once.
// build: gcc,clang O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static
// oracle: closed
// count: handled_here = 20000
#include <signal.h>
#include <stdio.h>
static volatile unsigned long handled;
static void handler(int number) {
  __asm__ volatile(".globl handled_here\nhandled_here: nop");
  handled += number == SIGUSR1;
}
int main(void) {
  signal(SIGUSR1, handler);
  for (int i = 0; i < 20000; i++) raise(SIGUSR1);
  printf("%lu\n", handled);
  return 0;
}
