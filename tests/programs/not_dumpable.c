// Claim: a process that nobody may look into (PR_SET_DUMPABLE 0) is counted, and so is its child.
// build: gcc,clang O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// oracle: output
// count: work = 300
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long total;
__attribute__((noinline)) void work(void) { total++; }

int main(void) {
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  for (int i = 0; i < 100; i++) work();
  int status = 0;
  if (fork() == 0) {
    for (int i = 0; i < 200; i++) work();
    _exit(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  }
  wait(&status);
  printf("%ld %d %d\n", total, WEXITSTATUS(status), prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  return 0;
}
