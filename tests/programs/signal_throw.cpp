// Claim: exceptions thrown from handlers of synchronous signals pass the signal's frame.  (Optimized
// by Clang 14, which knows no such exceptions, the program aborts.)
// build: gcc O0,O2 pie,nopie static,dynamic; clang O0 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// flags: -fnon-call-exceptions
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void handler(int number) { throw number; }

struct Guard {
  int* count;
  ~Guard() { ++*count; }
};

__attribute__((noinline)) static int fault(volatile int* at) { return *at + 1; }
__attribute__((noinline)) static int guarded(volatile int* at, int* count) {
  Guard guard{count};
  return fault(at) + 1;
}

int main() {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGUSR1, &action, nullptr);
  int count = 0, caught = 0;
  int good = 5;
  for (int i = 0; i < 4; i++) {
    try {
      caught += 1000 * guarded(i % 2 ? &good : reinterpret_cast<int*>(16), &count);
    } catch (int number) {
      caught += number;
    }
  }
  printf("%d %d\n", count, caught);
}
