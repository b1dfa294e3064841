// What the time decides, and what it does not.
#include <stdio.h>
#include <time.h>

static volatile int sink;

// As often either way as chance has it: here once each way by the clock's second.
__attribute__((noinline)) static long difference(struct timespec a, struct timespec b) {
  if (b.tv_nsec < a.tv_nsec) return (b.tv_sec - a.tv_sec - 1) * 1000000000L + b.tv_nsec;
  return (b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec;
}

// Handed on by who calls nothing else.
__attribute__((noinline)) static int borrows(struct timespec a, struct timespec b) {
  if (b.tv_nsec < a.tv_nsec) sink += 2;
  return sink + 1;
}

__attribute__((noinline)) static long handed(struct timespec a, struct timespec b) {
  return borrows(a, b) + 1;
}

__attribute__((noinline)) static struct timespec now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t;
}

__attribute__((noinline)) static int work(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += i % 7 == 3 ? 2 : 1;
  return sum;
}

int main(void) {
  const struct timespec begin = {0, 0};
  const struct timespec end = now();
  sink = work(100);
  sink += difference(begin, end) > 5;
  sink += handed(begin, end) > 5;
  puts("done");
  return 0;
}
