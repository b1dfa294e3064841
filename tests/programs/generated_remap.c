// Claim: code is unmapped and other code mapped at the same address, again and again.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie static
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int main(void) {
  long sum = 0;
  for (int i = 0; i < 300; i++) {
    unsigned char* code = mmap((void*)0x20000000, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    const unsigned char text[] = {0x8d, 0x47, i & 63, 0xc3};
    memcpy(code, text, sizeof text);
    mprotect(code, 4096, PROT_READ | PROT_EXEC);
    for (int k = 0; k < 3; k++) sum += ((int (*)(int))code)(k);
    munmap(code, 4096);
  }
  printf("%ld\n", sum);
  return 0;
}
