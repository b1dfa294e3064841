// Claim: backtrace() and _Unwind_Backtrace see the same frames as natively, also from a callback of
// libc and from another thread.
// build: gcc,clang O0,O2 pie,nopie dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie dynamic
// flags: -fasynchronous-unwind-tables -pthread
// oracle: output
// varies: whether main waits for the thread
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unwind.h>

static int base(int n);
static _Unwind_Reason_Code frame(struct _Unwind_Context* context, void* count) {
  // A frame's canonical address tells one from another; the return address is the program's own.
  printf(" %d:%d", ++*(int*)count, (long)_Unwind_GetIP(context) != 0);
  return _URC_NO_REASON;
}

__attribute__((noinline)) static void show(const char* where) {
  void* frames[32];
  const int n = backtrace(frames, 32);
  printf("%s: %d frames:", where, n);
  for (int i = 0; i < 3 && i < n; i++) printf(" %ld", (long)((char*)frames[i] - (char*)base));
  int count = 0;
  _Unwind_Backtrace(frame, &count);
  puts("");
}

static int compare(const void* a, const void* b) {
  static int shown;
  if (!shown++) show("in qsort");
  return *(const int*)a - *(const int*)b;
}

__attribute__((noinline)) static int deep(int n) {
  if (n == 0) show("deep");
  return n == 0 ? 0 : deep(n - 1) + 1;
}
__attribute__((noinline)) static int base(int n) { return deep(n) + 2; }
static void* in_thread(void* p) {
  show("in a thread");
  return p;
}

int main(void) {
  int numbers[] = {3, 1, 2};
  base(5);
  qsort(numbers, 3, sizeof numbers[0], compare);
  pthread_t thread;
  pthread_create(&thread, 0, in_thread, 0);
  pthread_join(thread, 0);
  return 0;
}
