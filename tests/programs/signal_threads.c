// Claim: signals to single threads (pthread_kill) and a processor-time timer over many threads:
// each is handled once by the thread it is for, and no loop's count changes.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// flags: -pthread
// oracle: closed
// count: turn_here = 800000
// count: own_here = 200
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>

enum { kThreads = 4, kSignals = 50, kTurns = 200000 };
static __thread volatile int mine;
static __thread int number_of_thread;
static volatile unsigned long ticks, foreign;
static pthread_t threads[kThreads];
static sem_t handled, ready;

static void on_own(int number) {
  (void)number;
  __asm__ volatile(".globl own_here\nown_here: nop");
  mine++;
  if (!pthread_equal(pthread_self(), threads[number_of_thread])) foreign++;
  sem_post(&handled);
}
static void on_tick(int number) {
  (void)number;
  __sync_fetch_and_add(&ticks, 1);
}

__attribute__((noinline)) static long step(long x) {
  __asm__ volatile(".globl turn_here\nturn_here: add $1, %0" : "+r"(x)::"cc");
  return x;
}
static void* work(void* argument) {
  number_of_thread = (int)(long)argument;
  sem_post(&ready);
  long x = 0;
  for (int i = 0; i < kTurns; i++) x = step(x);
  while (mine < kSignals) __asm__ volatile("pause");
  return (void*)(x + mine);
}

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_flags = SA_RESTART;
  action.sa_handler = on_own;
  sigaction(SIGUSR1, &action, NULL);
  action.sa_handler = on_tick;
  sigaction(SIGPROF, &action, NULL);
  sem_init(&handled, 0, 0);
  sem_init(&ready, 0, 0);
  struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_PROF, &timer, NULL);
  for (long i = 0; i < kThreads; i++) pthread_create(&threads[i], NULL, work, (void*)i);
  for (int i = 0; i < kThreads; i++) {
    while (sem_wait(&ready) != 0) {
    }
  }
  for (int i = 0; i < kThreads * kSignals; i++) {
    pthread_kill(threads[i % kThreads], SIGUSR1);
    while (sem_wait(&handled) != 0) {
    }
  }
  long sum = 0;
  for (int i = 0; i < kThreads; i++) {
    void* result;
    pthread_join(threads[i], &result);
    sum += (long)result;
  }
  memset(&timer, 0, sizeof timer);
  setitimer(ITIMER_PROF, &timer, NULL);
  printf("%ld %lu\n", sum, foreign);
  return 0;
}
