// Claim: handlers without call frame information, one inside the other, the inner one on a stack of
// its own; the inner one ends the process: what the signals struck, and whoever called that, is
// left there.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// expect: status=7
// oracle: step
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

// The outer handler calls `count` and `again` in turn from a frame of its own and returns after the
// first two signals; the inner one makes the system call exit_group(7) itself.
__asm__(
    ".text\n"
    "outer: .globl outer\n"
    "  sub $88, %rsp\n"
    "  call count\n"
    "  test %eax, %eax\n"
    "  je 1f\n"
    "  call again\n"
    "1:\n"
    "  add $88, %rsp\n"
    "  ret\n"
    "inner: .globl inner\n"
    "  push %rbx\n"
    "  mov $231, %eax\n"
    "  mov $7, %edi\n"
    "  syscall\n"
    "  pop %rbx\n"
    "  ret\n");
void outer(int);
void inner(int);

static volatile int signals;
static char stack[65536];

__attribute__((used)) int count(void) { return ++signals == 3; }

__attribute__((used, noinline)) void again(void) {
  raise(SIGUSR2);
  signals = 0;  // not reached
}

__attribute__((noinline)) static int deep(int n) {
  if (n == 0) {
    raise(SIGUSR1);
    return signals;
  }
  return deep(n - 1) + 1;
}

int main(void) {
  const stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  sigaltstack(&own, NULL);
  struct sigaction action = {.sa_handler = outer};
  sigaction(SIGUSR1, &action, NULL);
  action.sa_handler = inner;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGUSR2, &action, NULL);
  for (int i = 0; i < 3; i++) {
    printf("%d\n", deep(i));
    fflush(stdout);
  }
  return 1;
}
