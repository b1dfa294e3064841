// Claim: procedures without call frame information that align their stack, load its old place from
// memory and return as many arguments as they were passed (V8's built-ins do), called and jumped to
// from one another, are no switches of stacks.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: step
#include <stdio.h>

// last(...) and first(...) take any number of arguments on the stack, the number in rdi; they give
// them back by loading the stack pointer, and return.  `first` calls `last` and jumps to it, so
// that both are one procedure to who finds code by itself.
#define GIVE_BACK "mov %rsp, %rcx\n pop %r10\n lea (%rsp,%rdi,8), %rsp\n push %r10\n ret\n"
#define GIVE_BACK_FRAME                                                     \
  "mov -8(%rbp), %rdi\n mov %rbp, %rsp\n pop %rbp\n cmp $1, %rdi\n jg 3f\n" \
  "ret $8\n 3: " GIVE_BACK
__asm__(
    ".text\n"
    ".type call_first, @function\n"
    "call_first:\n .cfi_startproc\n"
    "push %rbx\n .cfi_adjust_cfa_offset 8\n push %rbp\n .cfi_adjust_cfa_offset 8\n"
    ".cfi_rel_offset %rbp, 0\n"
    "mov %rsp, %rbx\n mov %rdi, %rcx\n"
    ".cfi_def_cfa_register %rbx\n"
    "1: push %rcx\n dec %rcx\n jnz 1b\n"
    "call .Lfirst\n"
    "mov %rbx, %rsp\n"
    ".cfi_def_cfa_register %rsp\n"
    "pop %rbp\n .cfi_adjust_cfa_offset -8\n pop %rbx\n .cfi_adjust_cfa_offset -8\n"
    "ret\n .cfi_endproc\n"
    ".size call_first, .-call_first\n"
    ".Lfirst:\n push %rbp\n mov %rsp, %rbp\n push %rdi\n push %rdi\n"
    "mov 16(%rbp), %rax\n test $1, %rdi\n jz 2f\n"
    "push $5\n push $7\n push $9\n mov $3, %edi\n call .Llast\n"
    "push $5\n mov $1, %edi\n call .Llast\n"
    "add $100, %rax\n" GIVE_BACK_FRAME
    "2: mov -8(%rbp), %rdi\n mov %rbp, %rsp\n pop %rbp\n test $2, %rdi\n jnz .Llast\n" GIVE_BACK
    ".Llast:\n mov 8(%rsp), %r10\n add %r10, %rax\n mov %rsp, %r10\n"
    "sub $8, %rsp\n and $-16, %rsp\n mov %r10, (%rsp)\n call .Lnone\n mov (%rsp), %rsp\n"
    GIVE_BACK
    ".Lnone: ret\n");
long call_first(long arguments);

__attribute__((noinline)) static long deep(long n, long arguments) {
  return n == 0 ? call_first(arguments) : deep(n - 1, arguments) + 1;
}

int main(void) {
  long sum = 0;
  for (long i = 0; i < 200; i++) sum += deep(i % 5, 1 + i % 7);
  printf("%ld\n", sum);
  return 0;
}
