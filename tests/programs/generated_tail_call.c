// Claim: generated code that a described procedure has jumped to, as its last act, comes back to
// where that was called; also when the program ends with both of them open.
// build: gcc,clang O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// expect: status=3
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef void (*procedure)(void);
static volatile int left = 100;

__attribute__((noinline)) static void leave(void) {
  if (--left == 0) exit(3);
}

// As compilers end a procedure whose last act is a call.
void enter(procedure code, procedure callee);
void enter_by_way(procedure code, procedure callee);
__asm__(
    ".text\n"
    ".globl enter\n"
    "enter: .cfi_startproc\n"
    "jmp *%rdi\n"
    ".cfi_endproc\n"
    ".globl enter_by_way\n"
    "enter_by_way: .cfi_startproc\n"
    "jmp enter\n"
    ".cfi_endproc\n");

__attribute__((noinline)) static int outer(procedure code, int depth) {
  if (depth > 0) return outer(code, depth - 1) + 1;
  (left & 1 ? enter : enter_by_way)(code, leave);
  return left;
}

int main(void) {
  // sub rsp, 40; call rsi; add rsp, 40; ret
  const unsigned char text[] = {0x48, 0x83, 0xec, 0x28, 0xff, 0xd6, 0x48, 0x83, 0xc4, 0x28, 0xc3};
  char* code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(code, text, sizeof text);
  if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0) return 1;
  long sum = 0;
  for (int i = 0; i < 200; i++) sum += outer((procedure)code, i % 5);
  printf("%ld\n", sum);
  return 0;
}
