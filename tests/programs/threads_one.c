// Claim: one pthread, whose start, body and end are exact (timing-dependent paths of libc aside).
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static; gcc O2 pie dynamic
// flags: -pthread
// oracle: closed
// count: thread_main = 1
// count: work = 1000
#include <pthread.h>
#include <stdio.h>

static __thread long mine = 5;
__attribute__((noinline)) void work(long n) { mine += n; }
void* thread_main(void* p) {
  for (long i = 0; i < 1000; i++) work(i);
  *(long*)p = mine;
  return p;
}

int main(void) {
  pthread_t thread;
  long result = 0;
  if (pthread_create(&thread, NULL, thread_main, &result)) return 1;
  void* back;
  pthread_join(thread, &back);
  printf("%ld %ld %d\n", result, mine, back == &result);
  return 0;
}
