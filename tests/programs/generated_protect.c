// Claim: code that is made writable, changed and made executable again (never both at once); units
// that did not change stay, the others are translated anew.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void write_code(unsigned char* code, unsigned char add) {
  const unsigned char text[] = {0x31, 0xc0, 0x83, 0xc0, add, 0xff, 0xcf, 0x75, 0xf9, 0xc3};
  memcpy(code, text, sizeof text);
}

int main(void) {
  unsigned char* code = mmap((void*)0x20000000, 8192, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  int (*f)(int) = (int (*)(int))code;
  int (*g)(int) = (int (*)(int))(code + 128);
  long sum = 0;
  write_code(code + 128, 100);
  for (int generation = 1; generation <= 20; generation++) {
    mprotect(code, 8192, PROT_READ | PROT_WRITE);
    write_code(code, generation / 2);
    mprotect(code, 8192, PROT_READ | PROT_EXEC);
    for (int i = 1; i <= 10; i++) sum += f(i) + g(i);
  }
  printf("%ld\n", sum);
  return 0;
}
