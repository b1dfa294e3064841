// Exceptions from instructions that are no calls: a handler of SIGSEGV throws
// (-fnon-call-exceptions).
#include <csignal>
#include <cstdio>

static void on_fault(int) {
  throw 7;
}

__attribute__((noinline)) static int maybe(int i) {
  if (i % 5 == 4) throw 1;
  return i;
}

// Lands from the call or from the load.
__attribute__((noinline)) static int both(const int* p, int i) {
  try {
    return maybe(i) + *p;
  } catch (int n) {
    return n;
  }
}

__attribute__((noinline)) static int only(const int* p) {
  try {
    return *p;
  } catch (int n) {
    return n;
  }
}

int main() {
  struct sigaction action {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  const int there = 3;
  int sum = 0;
  for (int i = 0; i < 100; ++i) {
    sum += both(i % 3 != 0 ? &there : nullptr, i);
    sum += only(i % 4 != 0 ? &there : nullptr);
  }
  printf("%d\n", sum);
  return 0;
}
