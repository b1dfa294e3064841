// Claim: coroutines whose stacks are freed while they wait, and made again in the same memory
// (malloc and mmap), are closed on the ledger once each.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 nopie dynamic; gcc O0 pie static
// oracle: step
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t host, guest;
static volatile int turns;

__attribute__((noinline)) static void rest(int n) {
  if (n > 0) rest(n - 1);
  else swapcontext(&guest, &host);
  turns++;
}

static void body(int depth, int times) {
  for (int i = 0; i < times; i++) rest(depth);
}

static void run(void *stack, size_t bytes, int depth, int times, int rounds) {
  getcontext(&guest);
  guest.uc_stack.ss_sp = stack;
  guest.uc_stack.ss_size = bytes;
  guest.uc_link = &host;
  makecontext(&guest, (void (*)(void))body, 2, depth, times);
  for (int i = 0; i < rounds; i++) swapcontext(&host, &guest);
}

int main(void) {
  for (int i = 0; i < 6; i++) {
    void *stack = malloc(30000);
    run(stack, 30000, i % 3, 3, 1 + i % 4);  // the fourth round ends it
    free(stack);
    stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    run(stack, 65536, 2, 2, 1 + i % 3);
    if (i % 2) run(stack, 40000, 1, 5, 2);  // begins in the middle of what was left
    munmap(stack, 65536);
  }
  printf("%d\n", turns);
  return 0;
}
