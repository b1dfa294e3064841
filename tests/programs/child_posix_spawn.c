// Claim: posix_spawn with file actions.
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
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, 1, 7);
  char* arguments[] = {"sh", "-c", "echo child >&7; exit 5", NULL};
  if (posix_spawn(&pid, "/bin/sh", &actions, NULL, arguments, environ)) return 2;
  waitpid(pid, &status, 0);
  for (int i = 0; i < 10; i++) work();
  printf("%d %d\n", WIFEXITED(status), WEXITSTATUS(status));
  return !(WIFEXITED(status) && WEXITSTATUS(status) == 5);
}
