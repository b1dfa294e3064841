// Claim: siglongjmp out of handlers, of synchronous and other signals, from several frames deep and
// from an alternate stack, leaves what was abandoned balanced.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie static; clang O0 nopie static; gcc O0 pie dynamic
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static sigjmp_buf out;
static volatile int times, overflows;
static char alternate[1 << 16];

__attribute__((noinline)) static void leave(int n) {
  times++;
  if (n == 0) siglongjmp(out, 1);
  leave(n - 1);
  times += 1000;
}
static void on_fault(int number) { leave(number == SIGSEGV ? 3 : 0); }
static void on_overflow(int number) {
  (void)number;
  overflows++;
  siglongjmp(out, 2);
}

__attribute__((noinline)) static long deep(long n) {
  volatile char room[4096];
  room[n & 4095] = 1;
  return n < 0 ? 0 : deep(n + 1) + room[0];
}
__attribute__((noinline)) static void store(volatile int* at) { *at = 1; }
__attribute__((noinline)) static void three(int i) {
  if (i % 2) store((int*)8);
  raise(SIGUSR1);
  times += 10000;
}
__attribute__((noinline)) static void two(int i) { three(i), times += 10000; }

static void install(int number, void (*handler)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(number, &action, NULL);
}

int main(void) {
  install(SIGSEGV, on_fault, 0);
  install(SIGUSR1, on_fault, 0);
  for (volatile int i = 0; i < 6; i++) {
    if (sigsetjmp(out, 1) == 0) two(i);
  }
  void (*volatile nowhere)(void) = NULL;
  if (sigsetjmp(out, 1) == 0) nowhere();
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  sigaltstack(&stack, NULL);
  install(SIGSEGV, on_overflow, SA_ONSTACK);
  for (volatile int i = 0; i < 3; i++) {
    if (sigsetjmp(out, 1) == 0) deep(1);
  }
  printf("%d %d\n", times, overflows);
  return 0;
}
