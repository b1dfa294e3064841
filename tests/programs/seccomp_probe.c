// Claim: a program may ask what the kernel knows of seccomp by calls that must fail, as libseccomp
// does before each filter: strict mode with a flag, a filter that is nowhere.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
// count: ask = 6
#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline)) int ask(long operation, long flags, const void* argument) {
  errno = 0;
  return syscall(SYS_seccomp, operation, flags, argument) == -1 ? errno : 0;
}

int main(void) {
  unsigned kill = SECCOMP_RET_KILL_PROCESS;
  printf("strict with a flag: %d\n", ask(SECCOMP_SET_MODE_STRICT, 1, NULL));
  printf("strict with an argument: %d\n", ask(SECCOMP_SET_MODE_STRICT, 0, &kill));
  printf("a filter nowhere: %d\n", ask(SECCOMP_SET_MODE_FILTER, 0, NULL));
  printf("one for all threads: %d\n",
         ask(SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, NULL));
  printf("an action: %d\n", ask(SECCOMP_GET_ACTION_AVAIL, 0, &kill));
  printf("no operation: %d\n", ask(99, 0, NULL));
  printf("mode: %d\n", prctl(PR_GET_SECCOMP));
  printf("a filter nowhere: %d\n",
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 ? errno : 0);
  return 0;
}
