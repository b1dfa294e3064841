// Contexts from a pool: whoever takes one that was used goes another way, calls below the lock.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct context {
  struct context *next;
  int used;
  long sum;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct context *pool;
static int jobs = 4;

__attribute__((noinline)) static struct context *take(void) {
  pthread_mutex_lock(&lock);
  struct context *c = jobs-- > 0 ? pool : (struct context *)-1;
  if (c == pool && c) pool = c->next;
  pthread_mutex_unlock(&lock);
  return c;
}

__attribute__((noinline)) static void put(struct context *c) {
  pthread_mutex_lock(&lock);
  c->next = pool;
  pool = c;
  pthread_mutex_unlock(&lock);
}

__attribute__((noinline)) static void clear(struct context *c) {
  if (c->used) c->sum = 1;
  c->used = 1;
}

__attribute__((noinline)) static void compute(struct context *c) {
  for (long i = 0; i < 3000; ++i) c->sum += i % 7 == 3 ? 2 : 1;
}

__attribute__((noinline)) static void run(struct context *c) {
  clear(c);
  compute(c);
}

static void *worker(void *unused) {
  for (;;) {
    struct context *c = take();
    if (c == (struct context *)-1) return unused;
    if (!c) c = calloc(1, sizeof *c);
    run(c);
    put(c);
  }
}

int main(void) {
  pthread_t other;
  pthread_create(&other, 0, worker, 0);
  pthread_join(other, 0);  // a context only: every run is alike
  printf("%ld\n", pool->sum);
  return 0;
}
