// Work for a sampler: three procedures of unlike weight, one of them inlined, one recursive.
#include <stdio.h>

static inline long mix(long a, long b) {
  return (a * 31) ^ (b >> 3);
}

__attribute__((noinline)) static long heavy(const long *table, long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) {
    if ((table[i] & 3) == 0) {
      sum = mix(sum, table[i]);
    } else {
      sum += i;
    }
  }
  return sum;
}

__attribute__((noinline)) static long light(long n) {
  long sum = 0;
  while (n-- > 0) sum += n & 7;
  return sum;
}

__attribute__((noinline)) static long deep(long n) {
  return n < 2 ? n : deep(n - 1) + deep(n - 2);
}

int main(void) {
  static long table[400];
  for (long i = 0; i < 400; ++i) table[i] = i * 7;
  long sum = 0;
  for (int i = 0; i < 20; ++i) sum += heavy(table, 400) + light(90);
  printf("%ld\n", sum + deep(12));
  return 0;
}
