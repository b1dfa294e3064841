// Claim: a thread forks while others run: the child has one thread only, with the stack of its maker.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// flags: -pthread
// count: work = 4050
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static __thread long sink;
__attribute__((noinline)) void work(void) { __asm__ volatile("incq %0" : "+m"(sink)); }

static void* count(void* p) {
  for (int i = 0; i < 1000; i++) work();
  return p;
}

static void* forks(void* p) {
  pid_t pid = fork();
  if (pid == 0) {
    for (int i = 0; i < 50; i++) work();
    _exit(sink == 50 ? 9 : 1);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return 0;
  *(int*)p = WEXITSTATUS(status);
  return count(p);
}

int main(void) {
  pthread_t thread[4];
  int result = 0;
  for (int i = 0; i < 3; i++) pthread_create(&thread[i], 0, count, &result);
  pthread_create(&thread[3], 0, forks, &result);
  for (int i = 0; i < 4; i++) pthread_join(thread[i], 0);
  printf("%d\n", result);
  return result != 9;
}
