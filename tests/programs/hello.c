// Claim: hello world in every way of linking: every instruction of ld.so, libc and the program.
// build: gcc,clang O0,O2,O3 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie dynamic; gcc O2 nopie static; clang O2 pie static
// expect: status=3
#include <stdio.h>

int main(void) {
  puts("hello");
  return 3;
}
