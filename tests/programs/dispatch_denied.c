// Claim: a program that asks for its system calls to be dispatched by their addresses, all but
// those from around libc's `syscall`, is told that there is no such thing (EINVAL), as by older
// kernels; its own calls work as before, and Tally's are not trapped.
// build: gcc,clang O2 pie dynamic,static
// ci: gcc O2 pie dynamic
// oracle: output
// count: ask = 100
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile char selector = 1;  // SYSCALL_DISPATCH_FILTER_BLOCK
__attribute__((noinline)) int ask(void) {
  return syscall(SYS_getpid) > 0;
}

int main(void) {
  const unsigned long around = 4 << 20, from = (unsigned long)&syscall - around;
  prctl(59, 1, from, 2 * around, &selector);  // PR_SET_SYSCALL_USER_DISPATCH, on
  int right = 0;
  for (int i = 0; i < 100; i++) right += ask();
  printf("%d\n", right);
  return 0;
}
