// Claim: exec of what is missing, no program, or a folder fails, and the program goes on; so in a vfork child.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// count: work = 7
#include <errno.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  char* argv[] = {"x", 0};
  char* envp[] = {0};
  printf("%d", execve("/nowhere/at/all", argv, envp) == -1 && errno == ENOENT);
  work();
  printf("%d", execve("/etc", argv, envp) == -1 && errno == EACCES);
  work();
  printf("%d", execve("/etc/passwd", argv, envp) == -1 && errno == EACCES);
  work();
  printf("%d", execve(0, argv, envp) == -1 && errno == EFAULT);
  work();
  fflush(stdout);
  pid_t pid = vfork();
  if (pid == 0) {
    execve("/nowhere/at/all", argv, envp);
    _exit(errno);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  for (int i = 0; i < 3; i++) work();
  printf("%d\n", WEXITSTATUS(status) == ENOENT);
  return 0;
}
