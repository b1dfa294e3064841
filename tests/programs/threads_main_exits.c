// Claim: main returns while another thread sits in a system call and one runs: nothing hangs,
// nothing is left, and the counts of what certainly ran are exact.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// flags: -pthread
// oracle: closed
// expect: status=6
// count: sleeper = 1
// count: work = 5000
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int pipe_ends[2], done[2];
static volatile long sink;
void* sleeper(void* p) {
  char c;
  (void)p;
  write(done[1], "s", 1);
  read(pipe_ends[0], &c, 1);
  return NULL;
}
__attribute__((noinline)) void work(void) { sink++; }
static void* runner(void* p) {
  (void)p;
  for (int i = 0; i < 5000; i++) work();
  write(done[1], "r", 1);
  for (;;) sink++;
}

int main(void) {
  pthread_t a, b;
  char c[2];
  if (pipe(pipe_ends) || pipe(done)) return 1;
  pthread_create(&a, NULL, sleeper, NULL);
  pthread_create(&b, NULL, runner, NULL);
  if (read(done[0], c, 1) != 1 || read(done[0], c + 1, 1) != 1) return 2;
  printf("leaving\n");
  return 6;
}
