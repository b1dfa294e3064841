// Claim: a program whose own code is relocated when it starts (text relocations).
// build: gcc,clang O0,O2 pie dynamic
// ci: gcc O2 pie dynamic
// flags: -Wl,-z,notext
#include <stdio.h>

int table[4] = {1, 2, 3, 4};

__asm__(
    ".text\n"
    "relocated: .globl relocated\n"
    "  movabs $table, %rax\n"
    "  movl (%rax,%rdi,4), %eax\n"
    "  ret\n");
int relocated(long);

int main(void) {
  int sum = 0;
  for (int i = 0; i < 100; i++) sum += relocated(i & 3);
  printf("%d\n", sum);
  return 0;
}
