// Claim: data of the program's own file that is made executable: written at run time, never written,
// and writable all the time.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static
// inexact: changed after it had run
// count: main = 1
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

static unsigned char written[4096] __attribute__((aligned(4096))) = {0x8d, 0x47, 0x07, 0xc3};
static const unsigned char constant[4096] __attribute__((aligned(4096))) = {0x8d, 0x47, 0x09, 0xc3};

static int run(const void* code, int protection, int times) {
  if (mprotect((void*)(uintptr_t)code, 4096, protection)) return -1;
  int sum = 0;
  for (int i = 0; i < times; i++) sum += ((int (*)(int))(uintptr_t)code)(i);
  return sum;
}

int main(void) {
  int sum = run(written, PROT_READ | PROT_EXEC, 1000);
  sum += run(constant, PROT_READ | PROT_EXEC, 100);
  if (mprotect(written, 4096, PROT_READ | PROT_WRITE | PROT_EXEC)) return 1;
  written[2] = 8;
  sum += run(written, PROT_READ | PROT_WRITE | PROT_EXEC, 10);
  printf("%d\n", sum);
  return 0;
}
