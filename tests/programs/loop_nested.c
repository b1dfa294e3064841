// Claim: nested loops with break, continue and goto into outer levels are exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long work(long n, long stop) {
  long found = 0;
  for (long i = 0; i < n; i++) {
    for (long j = 0; j < n; j++) {
      if (j == i) continue;
      for (long k = j; k < n; k++) {
        if ((i * j + k) % 7 == 3) break;
        if (i * j * k == stop) goto done;
        found++;
      }
    }
  }
done:
  return found;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  print_number("all", work(12, -1));
  print_number("stopped", work(12, 7 * 8 * 9));
  return 0;
}
