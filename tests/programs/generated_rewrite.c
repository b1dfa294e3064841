// Claim: a function made at run time in writable, executable memory is called in a loop, rewritten
// in place and called again: each generation is counted, and they sum up by address.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static void write_code(unsigned char* code, unsigned char add) {
  // loop: add eax, imm8; dec edi; jnz loop; ret
  const unsigned char text[] = {0x31, 0xc0, 0x83, 0xc0, add, 0xff, 0xcf, 0x75, 0xf9, 0xc3};
  memcpy(code, text, sizeof text);
}

int main(void) {
  unsigned char* code = mmap((void*)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  int (*f)(int) = (int (*)(int))code;
  long sum = 0;
  for (int generation = 1; generation <= 3; generation++) {
    write_code(code, generation);
    for (int i = 1; i <= 50; i++) sum += f(i);
  }
  printf("%ld\n", sum);
  return 0;
}
