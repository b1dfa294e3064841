// Claim: a hundred children, one after the other, and one that nobody waits for (a zombie at the end).
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie static
// oracle: closed
// count: work = 101
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  int sum = 0;
  for (int i = 0; i < 101; i++) {
    pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) {
      work();
      _exit(i);
    }
    if (i == 100) {
      siginfo_t info;
      if (waitid(P_PID, pid, &info, WEXITED | WNOWAIT) != 0) return 2;
      break;
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return 3;
    sum += WEXITSTATUS(status);
  }
  printf("%d\n", sum);
  return sum != 4950;
}
