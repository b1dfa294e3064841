// Claim: a page that is written and executed in turns, two thousand times.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie static
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
  unsigned char* code = mmap((void*)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  long sum = 0;
  for (int i = 0; i < 2000; i++) {
    // lea eax, [rdi + imm8]; ret
    const unsigned char text[] = {0x8d, 0x47, i & 63, 0xc3};
    memcpy(code, text, sizeof text);
    sum += ((int (*)(int))code)(i);
  }
  printf("%ld\n", sum);
  return 0;
}
