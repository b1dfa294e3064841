// Claim: the main thread leaves by pthread_exit, the process goes on in another one.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// flags: -pthread
// oracle: closed
// expect: status=8
// count: work = 3000
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_t leader;
static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }
static void* other(void* p) {
  pthread_join(leader, NULL);
  for (int i = 0; i < 3000; i++) work();
  printf("%ld\n", sink);
  exit(8);
}

int main(void) {
  pthread_t thread;
  leader = pthread_self();
  pthread_create(&thread, NULL, other, NULL);
  pthread_exit(NULL);
}
