// Claim: system(): the shell is counted as a run of its own.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// varies: sh prints its process numbers, which have more digits some day
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
  (void)pid;
  status = system("echo child; exit 5");
  for (int i = 0; i < 10; i++) work();
  printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}
