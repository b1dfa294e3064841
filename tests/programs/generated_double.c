// Claim: code written through one mapping of a memfd and run through another.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// flags: -D_GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
  int fd = memfd_create("code", 0);
  if (fd < 0 || ftruncate(fd, 4096)) return 1;
  unsigned char* w = mmap((void*)0x20000000, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                          fd, 0);
  unsigned char* x = mmap((void*)0x30000000, 4096, PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED,
                          fd, 0);
  long sum = 0;
  for (int generation = 1; generation <= 9; generation++) {
    // lea eax, [rdi + imm8]; ret
    const unsigned char text[] = {0x8d, 0x47, generation, 0xc3};
    memcpy(w, text, sizeof text);
    for (int i = 0; i < 20; i++) sum += ((int (*)(int))x)(i);
  }
  printf("%ld\n", sum);
  return 0;
}
