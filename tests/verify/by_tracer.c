// Goes another way when somebody traces it.
#include <stdio.h>
#include <sys/ptrace.h>

static volatile int sink;

__attribute__((noinline)) static void traced(int n) {
  for (int i = 0; i < n; ++i) sink += i % 7 == 3 ? 2 : 1;
}

int main(void) {
  if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0) traced(20);
  puts("done");
  return 0;
}
