// Claim: threads that end while others run (return, pthread_exit at depth, detached) keep counts.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// flags: -pthread
// oracle: closed
// count: work = 90000
// count: deep = 33
#include <pthread.h>
#include <stdio.h>

static volatile long sink[10];
static pthread_barrier_t barrier;
__attribute__((noinline)) void work(long slot) { sink[slot]++; }
__attribute__((noinline)) long deep(volatile long* n) {
  if ((*n)-- == 0) pthread_exit(NULL);
  long r = deep(n);
  __asm__ volatile("" ::: "memory");
  return r + 1;
}
static void* thread_main(void* p) {
  long slot = (long)p;
  for (long i = 0; i < 2000 * slot; i++) work(slot);
  volatile long n = 10;
  if (slot % 3 == 0) deep(&n);
  return NULL;
}
static void* detached(void* p) {
  (void)p;
  pthread_barrier_wait(&barrier);
  return NULL;
}

int main(void) {
  pthread_t threads[10], other;
  pthread_barrier_init(&barrier, NULL, 2);
  for (long i = 1; i < 10; i++) pthread_create(&threads[i], NULL, thread_main, (void*)i);
  pthread_create(&other, NULL, detached, NULL);
  pthread_detach(other);
  pthread_barrier_wait(&barrier);
  long sum = 0;
  for (int i = 1; i < 10; i++) {
    pthread_join(threads[i], NULL);
    sum += sink[i];
  }
  printf("%ld\n", sum);
  return 0;
}
