// Claim: returns that take arguments from the stack with them, called directly and through a register,
// from a loop and from each other; what describes the stack changes behind such a call.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.type taker, @function
taker:
  .cfi_startproc
  add 8(%rsp), %rbx
  add 16(%rsp), %rbx
  ret $16
  .cfi_endproc
  .size taker, .-taker

.type both, @function
both:
  .cfi_startproc
  push $100
  .cfi_adjust_cfa_offset 8
  push $20
  .cfi_adjust_cfa_offset 8
  call taker
  .cfi_adjust_cfa_offset -16
  push 8(%rsp)
  .cfi_adjust_cfa_offset 8
  push $3
  .cfi_adjust_cfa_offset 8
  lea taker(%rip), %rax
  call *%rax
  .cfi_adjust_cfa_offset -16
  ret $8
  .cfi_endproc
  .size both, .-both

_start:
  xor %ebx, %ebx
  mov $9, %r12d
again:
  push $1000
  call both
  dec %r12d
  jnz again
  EXPECT %ebx $10107 1
  PASS
