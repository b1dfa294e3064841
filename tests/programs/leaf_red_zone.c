// Claim: leaf functions that keep locals in the red zone around a switch keep their values.
// build: gcc,clang O0,O1,O2 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long leaf(long n, long salt) {
  volatile long a[12];
  for (long i = 0; i < 12; i++) a[i] = i * salt;
  switch (n) {
    case 0: a[0] = 3; break;
    case 1: a[1] = a[2] + 1; break;
    case 2: a[3] ^= a[4]; break;
    case 3: a[5] -= a[11]; break;
    case 4: a[6] += 100; break;
    case 5: a[7] = -1; break;
    case 6: a[8] <<= 2; break;
  }
  long sum = 0;
  for (long i = 0; i < 12; i++) sum = sum * 3 + a[i];
  return sum;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (long i = 0; i < 20; i++) sum ^= leaf(i % 9, i);
  print_number("sum", sum);
  return 0;
}
