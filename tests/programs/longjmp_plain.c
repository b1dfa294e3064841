// Claim: longjmp within a frame, through three frames, repeatedly, and out of a qsort callback
// leaves the abandoned calls balanced.
// build: gcc,clang O0,O2 pie,nopie static
// ci: gcc O2 nopie static; clang O0 pie static
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf here, outer;
static int reached;

__attribute__((noinline)) static void third(int n) {
  reached++;
  if (n % 3 == 0) longjmp(here, n + 1);
  reached += 100;
}
__attribute__((noinline)) static void second(int n) { third(n); reached += 1000; }
__attribute__((noinline)) static void first(int n) { second(n); reached += 10000; }

static int compare(const void* a, const void* b) {
  static int calls;
  if (++calls == 9) longjmp(outer, 5);
  return *(const int*)a - *(const int*)b;
}

int main(void) {
  volatile int got = 0;
  for (volatile int i = 0; i < 10; i++) {
    int r = setjmp(here);
    if (r == 0) first(i);
    got += r;
  }
  volatile int same = 0;
  if (setjmp(here) < 5) {
    same++;
    longjmp(here, same);
  }
  int values[16] = {9, 3, 7, 1, 8, 2, 6, 4, 5, 0, 11, 10, 15, 13, 12, 14};
  volatile int left = 0;
  if (setjmp(outer) == 0)
    qsort(values, 16, sizeof *values, compare);
  else
    left = 1;
  printf("%d %d %d %d\n", got, reached, same, left);
  return !(got == 22 && same == 5 && left == 1);
}
