// Claim: four threads that call one function 100000 times each make exactly 400000 entries.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie dynamic; gcc O2 nopie static
// flags: -pthread
// oracle: closed
// count: work = 400000
// count: thread_main = 4
#include <pthread.h>
#include <stdio.h>

static volatile long sink[4];
__attribute__((noinline)) void work(long slot) { sink[slot]++; }
void* thread_main(void* p) {
  for (int i = 0; i < 100000; i++) work((long)p);
  return NULL;
}

int main(void) {
  pthread_t threads[4];
  for (long i = 0; i < 4; i++)
    if (pthread_create(&threads[i], NULL, thread_main, (void*)i)) return 1;
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", sink[0] + sink[1] + sink[2] + sink[3]);
  return 0;
}
