// Claim: vfork and exec of another program.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// count: work = 10
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;
static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

int main(void) {
  int status = 1;
  pid_t pid;
  setvbuf(stdout, NULL, _IONBF, 0);
  printf("before\n");
  pid = vfork();
  if (pid == 0) {
    execl("/bin/sh", "sh", "-c", "echo child; exit 5", NULL);
    _exit(99);
  }
  waitpid(pid, &status, 0);
  for (int i = 0; i < 10; i++) work();
  printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}
