// Claim: generated code with nothing behind it yet, in memory that is writable and executable: a
// call at its end that does not come back, a long straight run of stores, and a run of zeros (each
// two a store) that is executed.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static
// oracle: step
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static jmp_buf back;
static int calls;

static void leave(void) {
  calls++;
  longjmp(back, 1);
}

int main(void) {
  unsigned char* code = mmap(0, 1 << 20, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return 1;
  // push %rax; mov $leave, %rax; call *%rax
  const unsigned char head[] = {0x50, 0x48, 0xb8};
  const unsigned char tail[] = {0xff, 0xd0};
  void (*target)(void) = leave;
  memcpy(code, head, 3);
  memcpy(code + 3, &target, 8);
  memcpy(code + 11, tail, 2);
  for (volatile int i = 0; i < 3; i++) {
    if (!setjmp(back)) ((void (*)(void))code)();
  }
  // 300 times `mov %esi, (%rdi)`, then `add $4, %rdi` and 20 zeros, `mov %rdi, %rax; ret`.
  unsigned char* stores = code + 8192;
  for (int i = 0; i < 300; i++) memcpy(stores + 2 * i, "\x89\x37", 2);
  memcpy(stores + 600, "\x48\x83\xc7\x04\x48\x89\xf8\x31\xc9", 9);
  memcpy(stores + 609 + 20, "\xc3", 1);
  int words[4] __attribute__((aligned(16))) = {0};
  char* end = 0;
  for (int i = 0; i < 3; i++) end = ((char* (*)(int*, int))stores)(words, 7 + i);
  printf("%d %d %d %d\n", calls, words[0], words[1] != 0, (int)(end - (char*)words));
  return 0;
}
