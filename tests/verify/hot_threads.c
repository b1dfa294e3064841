// Three threads that are hot for longer than any budget of a test, with cold code in front and
// behind; what each does does not hang on the others.
#include <pthread.h>
#include <stdio.h>

#define TURNS 4000000L

static long results[3];

__attribute__((noinline)) static long hot(long n) {
  long a = n;
  for (long i = 0; i < TURNS; i++) {
    if (i % 7 == n) a += i;
    __asm__ volatile("" : "+r"(a));
  }
  return a;
}

__attribute__((noinline)) static long cold(long n, long turns) {
  long a = 0;
  for (long i = 0; i < turns; i++) {
    switch ((i + n) % 4) {
      case 0: a += 3; break;
      case 1: a ^= n; break;
      case 2: a -= i; break;
      default: a = -a;
    }
    __asm__ volatile("" : "+r"(a));
  }
  return a;
}

static void* work(void* argument) {
  const long n = (long)argument;
  long a = cold(n, 5 + n);
  a += hot(n);
  a += cold(a & 3, 9 + n);
  results[n] = a;
  return NULL;
}

int main(void) {
  pthread_t threads[3];
  for (long i = 0; i < 3; i++) pthread_create(&threads[i], NULL, work, (void*)i);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  printf("%ld\n", results[0] + results[1] + results[2]);
  return 0;
}
