// Claim: threads that are cancelled (at a cancellation point, with cleanup handlers on the way) and
// threads that leave by pthread_exit from deep below unwind as natively; every block balanced.
// build: gcc,clang O0,O2 pie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 pie dynamic
// oracle: output
// flags: -pthread -fexceptions
// varies: whether threads wait for each other
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static int cleaned, ready;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;

static void cleanup(void* amount) { cleaned += *(int*)amount; }

__attribute__((noinline)) static int waits(int depth) {
  int amount = depth;
  int result = 0;
  pthread_cleanup_push(cleanup, &amount);
  if (depth == 0) {
    pthread_mutex_lock(&mutex);
    ready = 1;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
    for (;;) pause();
  }
  result = waits(depth - 1) + 1;
  pthread_cleanup_pop(0);
  return result;
}

__attribute__((noinline)) static int leaves(int depth) {
  if (depth == 0) pthread_exit((void*)7);
  return leaves(depth - 1) + 1;
}

static void* cancelled(void* p) { return (void*)(long)waits(5 + (p != 0)); }
static void* exits(void* p) { return (void*)(long)leaves(5 + (p != 0)); }

int main(void) {
  pthread_t thread;
  void* result = 0;
  int ends = 0;
  for (int i = 0; i < 3; i++) {
    ready = 0;
    pthread_create(&thread, 0, cancelled, 0);
    pthread_mutex_lock(&mutex);
    while (!ready) pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    ends += result == PTHREAD_CANCELED;
    pthread_create(&thread, 0, exits, 0);
    pthread_join(thread, &result);
    ends += (int)(long)result;
  }
  printf("%d %d\n", ends, cleaned);
  return 0;
}
