// Claim: a daemon: a child of a child that outlives the command, in a session of its own. It is waited for.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// count: work = 35
// varies: how often the daemon looks whether its parent has gone
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  pid_t pid = fork();
  if (pid == 0) {
    setsid();
    if (fork() == 0) {
      for (int i = 0; i < 100 && getppid() != 1; i++) usleep(1000);
      usleep(50000);
      for (int i = 0; i < 30; i++) work();
    }
    _exit(0);
  }
  waitpid(pid, 0, 0);
  for (int i = 0; i < 5; i++) work();
  return 0;
}
