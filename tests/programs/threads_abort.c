// Claim: a thread dies of SIGSEGV, the process with it.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic
// flags: -pthread
// oracle: closed
// expect: signal=SIGSEGV
// count: work = 777
#include <pthread.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }
static void* other(void* p) {
  for (int i = 0; i < 777; i++) work();
  *(volatile int*)p = 1;
  return NULL;
}

int main(void) {
  pthread_t thread;
  write(1, "go\n", 3);
  pthread_create(&thread, NULL, other, NULL);
  pthread_join(thread, NULL);
  return 1;
}
