// Claim: _exit skips atexit handlers and leaves main open, yet balanced.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static
// expect: status=9
#include <stdlib.h>
#include <unistd.h>

static void never(void) { write(1, "never\n", 6); }

int main(void) {
  atexit(never);
  write(1, "out\n", 4);
  _exit(9);
}
