// Claim: fork and wait: parent and child are counted, each as a run of its own; the sums over both
// are exact.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static; gcc O2 pie dynamic
// oracle: closed
// count: work = 1010
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 1000; i++) work();
    _exit(sink == 1000 ? 33 : 34);
  }
  for (int i = 0; i < 10; i++) work();
  int status;
  if (waitpid(pid, &status, 0) != pid) return 1;
  printf("%ld %d\n", sink, WEXITSTATUS(status));
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 33);
}
