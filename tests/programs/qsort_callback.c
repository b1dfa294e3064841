// Claim: callbacks from libc (qsort, bsearch) are exact in the program and in libc.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 nopie static; gcc O2 pie dynamic
#include <stdio.h>
#include <stdlib.h>

static int up(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
static int down(const void* a, const void* b) { return *(const int*)b - *(const int*)a; }

int main(void) {
  int values[64];
  unsigned seed = 1;
  for (int i = 0; i < 64; i++) values[i] = (int)((seed = seed * 1103515245 + 12345) >> 16) & 1023;
  qsort(values, 64, sizeof *values, up);
  for (int i = 1; i < 64; i++)
    if (values[i - 1] > values[i]) return 1;
  int key = values[17];
  int* found = bsearch(&key, values, 64, sizeof *values, up);
  if (!found || *found != key) return 2;
  qsort(values, 64, sizeof *values, down);
  printf("%d %d %d\n", values[0], values[63], key);
  return 0;
}
