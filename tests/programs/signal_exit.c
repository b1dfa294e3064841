// Claim: exit from within nested handlers, deep in a call chain: what was interrupted is balanced.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// expect: status=7
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static void finish(int n) {
  if (n == 0) exit(7);
  finish(n - 1);
  puts("never");
}
static void inner(int number) {
  (void)number;
  finish(2);
}
__attribute__((noinline)) static long fault(volatile long* at) { return *at + 1; }
static void outer(int number) {
  (void)number;
  printf("%ld\n", fault((long*)16));
}
__attribute__((noinline)) static void down(int n) {
  if (n == 0) raise(SIGUSR1);
  if (n > 0) down(n - 1);
  puts("never");
}
int main(void) {
  signal(SIGUSR1, outer);
  signal(SIGSEGV, inner);
  down(3);
  return 0;
}
