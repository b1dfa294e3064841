// Claim: computed goto (threaded code: every instruction has its own indirect jump) is exact.
// build: gcc,clang O0,O2,O3 pie,nopie nolibc
#include "include/nolibc.h"

NOINLINE long run(const unsigned char* code) {
  static const void* const labels[] = {&&stop, &&add, &&twice, &&less, &&loop};
  long a = 1, n = 30;
  const unsigned char* start = code;
#define NEXT goto* labels[*code++]
  NEXT;
add:
  a += 5;
  NEXT;
twice:
  a *= 2;
  NEXT;
less:
  a -= a >> 1;
  NEXT;
loop:
  if (--n) code = start;
  NEXT;
stop:
  return a;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  static const unsigned char code[] = {1, 2, 3, 3, 1, 4, 2, 0};
  print_number("result", run(code));
  return 0;
}
