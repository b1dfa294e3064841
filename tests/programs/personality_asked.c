// Claim: personality() asks and sets what concerns no code (no randomization of addresses, for the
// program it then becomes).
// build: gcc,clang O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// oracle: output
// count: again = 0
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, used)) void again(void) {}

int main(int argc, char** argv) {
  if (argc > 1) {
    printf("%x\n", (unsigned)personality(0xffffffff) & ADDR_NO_RANDOMIZE);
    return 0;
  }
  // Of what is asked, the kernel looks at 32 bits.
  if (syscall(SYS_personality, -1L) == -1) return 2;
  if (personality((unsigned long)personality(0xffffffff) | ADDR_NO_RANDOMIZE) == -1) return 1;
  char* arguments[] = {argv[0], (char*)"again", NULL};
  execv("/proc/self/exe", arguments);
  return 2;
}
