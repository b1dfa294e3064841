// Claim: coroutines made of setjmp and longjmp, on stacks that are part of main's frame, are told
// from jumps within one stack; some are left for good.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O0 nopie static; clang O2 pie dynamic
// oracle: step
#include <setjmp.h>
#include <stdio.h>
#include <ucontext.h>

enum { kGuests = 4, kBytes = 24000 };
static jmp_buf host, guests[kGuests];
static ucontext_t first, starter;
static volatile int turns, current;

__attribute__((noinline)) static void yield(int id) {
  if (_setjmp(guests[id]) == 0) _longjmp(host, 1);
}

__attribute__((noinline)) static int escape(jmp_buf out, int n) {
  if (n == 0) _longjmp(out, 1);
  return escape(out, n - 1) + 1;
}

static void body(int id) {
  for (int i = 0;; i++) {
    jmp_buf here;  // a jump within this stack
    if (_setjmp(here) == 0) turns += escape(here, i);
    turns += id;
    yield(id);
  }
}

static void begin(int id, char *stack) {
  getcontext(&starter);
  starter.uc_stack.ss_sp = stack;
  starter.uc_stack.ss_size = kBytes;
  starter.uc_link = NULL;
  makecontext(&starter, (void (*)(void))body, 1, id);
  if (_setjmp(host) == 0) swapcontext(&first, &starter);
}

__attribute__((noinline)) static void resume(int id) {
  if (_setjmp(host) == 0) _longjmp(guests[id], 1);
}

int main(void) {
  char stacks[kGuests][kBytes];
  for (int i = 0; i < kGuests; i++) begin(i, stacks[i]);
  for (int round = 0; round < 4; round++) {
    for (int i = round / 2; i < kGuests; i++) resume(i);
    jmp_buf here;
    if (_setjmp(here) == 0) escape(here, round);
  }
  printf("%d\n", turns);
  return stacks[0][0] & 0;
}
