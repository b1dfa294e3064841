// Two threads that meet rarely: what `take` does when the lock is held is chance, what `work` does
// is not, and `watch` waits by looking at memory.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int ready;
static long collisions, result;

__attribute__((noinline)) static void take(void) {
  if (pthread_mutex_trylock(&lock) != 0) {
    ++collisions;
    pthread_mutex_lock(&lock);
  }
}

__attribute__((noinline)) static long work(long n) {
  long sum = 0;
  for (long i = 0; i < n; ++i) {
    if (i % 3 == 0) sum += i;
  }
  return sum;
}

__attribute__((noinline)) static void watch(void) {
  while (!ready) {
  }
}

// Called with the lock held: it might look at what the lock protects.
__attribute__((noinline)) static long job(long n) {
  return work(n) + work(n / 2);
}

static void *thread(void *unused) {
  watch();
  take();
  result += job(100);
  pthread_mutex_unlock(&lock);
  return unused;
}

int main(void) {
  pthread_t other;
  ready = 1;  // so that nobody ever waits: two runs agree
  pthread_create(&other, 0, thread, 0);
  pthread_join(other, 0);
  take();
  result += job(50);
  pthread_mutex_unlock(&lock);
  printf("%ld %ld\n", result, collisions);
  return 0;
}
