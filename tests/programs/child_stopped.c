// Claim: a parent stops a child and sees it stop, continue and die; the child stops itself as well.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// count: work = 20
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 10; i++) work();
    raise(SIGSTOP);
    for (int i = 0; i < 10; i++) work();
    for (;;) pause();
  }
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return 1;
  printf("stopped by %d\n", WSTOPSIG(status));
  kill(pid, SIGCONT);
  if (waitpid(pid, &status, WCONTINUED) != pid || !WIFCONTINUED(status)) return 2;
  usleep(200000);
  kill(pid, SIGSTOP);
  if (waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) return 3;
  printf("stopped by %d\n", WSTOPSIG(status));
  if (waitpid(pid, &status, WNOHANG | WUNTRACED) != 0) return 4;
  kill(pid, SIGCONT);
  if (waitpid(pid, &status, WCONTINUED) != pid || !WIFCONTINUED(status)) return 5;
  usleep(100000);
  kill(pid, SIGTERM);
  if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status)) return 6;
  printf("killed by %d\n", WTERMSIG(status));
  return 0;
}
