// Claim: a program ends or becomes another one while a thread is inside libc's clone: its stack is
// followed although libc does not describe it there.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// flags: -pthread
// expect: status=5
// count: work = 40
// varies: how many threads are made
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }
static char** arguments;

static void* nothing(void* p) { return p; }

static void* makes_threads(void* p) {
  for (;;) {
    pthread_t thread;
    if (pthread_create(&thread, 0, nothing, 0) == 0) pthread_join(thread, 0);
  }
  return p;
}

int main(int argc, char** argv) {
  arguments = argv;
  const int left = argc > 1 ? atoi(argv[1]) : 2;
  pthread_t a, b;
  pthread_create(&a, 0, makes_threads, 0);
  pthread_create(&b, 0, makes_threads, 0);
  usleep(50000);
  if (left == 0) {
    for (int i = 0; i < 40; i++) work();
    exit(5);
  }
  char text[20];
  snprintf(text, sizeof text, "%d", left - 1);
  execl(argv[0], argv[0], text, (char*)0);
  return 1;
}
