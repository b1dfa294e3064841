// Claim: coroutines that go from thread to thread: the totals of the threads are exact, those of
// threads that end while theirs wait among them.
// build: gcc,clang O1 pie,nopie dynamic,static
// ci: gcc O1 pie dynamic; gcc O1 nopie static
// flags: -pthread -fno-inline -fno-optimize-sibling-calls
// oracle: closed
// count: run = 7
// count: body = 6
// count: rest = 83
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

enum { kGuests = 6 };
static ucontext_t guests[kGuests];
static __thread ucontext_t *host;
static volatile int turns;

// The compiler may keep the address of a thread's variable across a switch.
__attribute__((noinline)) static ucontext_t *my_host(void) {
  __asm__ volatile("");
  return host;
}

__attribute__((noinline)) static void rest(int id, int n) {
  if (n > 0) rest(id, n - 1);
  else swapcontext(&guests[id], my_host());
  turns++;
}

static void body(int id) {
  for (int i = 0; i < 2 + id; i++) rest(id, i);
  for (;;) swapcontext(&guests[id], my_host());
}

static void *run(void *argument) {
  ucontext_t here;
  host = &here;
  const int first = *(int *)argument;
  for (int i = first; i < kGuests; i++) swapcontext(&here, &guests[i]);
  return NULL;
}

int main(void) {
  for (int i = 0; i < kGuests; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = malloc(40000);
    guests[i].uc_stack.ss_size = 40000;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
  }
  int firsts[] = {0, 1, 0, 2, 4, 3};
  for (int i = 0; i < 6; i++) {  // one after the other
    pthread_t thread;
    pthread_create(&thread, NULL, run, &firsts[i]);
    pthread_join(thread, NULL);
    if (i == 2) run(&firsts[i]);
  }
  printf("%d\n", turns);
  return 0;
}
