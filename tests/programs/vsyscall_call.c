// Claim: calls into the vsyscall page, which the kernel emulates, return what the system calls do.
// build: gcc O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; gcc O0 nopie static
// oracle: output
// count: ask = 50
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef long (*Time)(long*);
static volatile Time vsyscall_time = (Time)0xffffffffff600400;
__attribute__((noinline)) long ask(void) { return vsyscall_time(NULL); }

int main(void) {
  long before = time(NULL), wrong = 0;
  for (int i = 0; i < 50; i++) {
    long now = ask();
    wrong += now < before || now > before + 60;
  }
  printf("%ld\n", wrong);
  return 0;
}
