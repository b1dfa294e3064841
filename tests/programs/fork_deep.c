// Claim: a child forked at the bottom of a deep call chain returns through frames that its parent
// entered; both return through all of them.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// count: work = 560
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

__attribute__((noinline)) int deep(int n) {
  if (n == 0) {
    pid_t pid = fork();
    if (pid == 0) {
      for (int i = 0; i < 500; i++) work();
      return 0;
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WEXITSTATUS(status);
  }
  int result = deep(n - 1);
  work();
  return result;
}

int main(void) {
  int result = deep(30);
  printf("%d %ld\n", result, sink);
  return result == 0 ? 7 : result == 7 && sink == 30 ? 0 : 1;
}
