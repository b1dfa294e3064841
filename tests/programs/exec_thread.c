// Claim: a thread other than the first becomes another program while threads run; the process keeps its number.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// flags: -pthread
// expect: status=4
// count: work = 40
// varies: how often the other thread wakes up
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }
static char** arguments;

static void* spin(void* p) {
  for (;;) usleep(1000);
  return p;
}

static void* becomes(void* p) {
  for (int i = 0; i < 40; i++) work();
  usleep(100000);  // all others sleep by now: where a thread is born there is no way to unwind
  char text[20];
  snprintf(text, sizeof text, "%d", getpid());
  execl(arguments[0], arguments[0], text, (char*)0);
  return p;
}

int main(int argc, char** argv) {
  if (argc > 1) {
    printf("%d\n", atoi(argv[1]) == getpid());
    return atoi(argv[1]) == getpid() ? 4 : 1;
  }
  arguments = argv;
  pthread_t a, b;
  pthread_create(&a, 0, spin, 0);
  pthread_create(&b, 0, becomes, 0);
  pthread_join(a, 0);
  return 2;
}
