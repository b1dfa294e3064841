// Claim: `call next; pop` and `push; ret` as a jump, `ret imm16`, a return to a changed address:
// each transition is exact, and no call is said to have returned that did not.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  mov %rsp, %r15
  mov $4, %r12d
loop:
  call next
next:
  pop %rax
  lea next(%rip), %rdx
  EXPECT %rax %rdx 1
  lea there(%rip), %rax
  push %rax
  ret
  hlt
there:
  push $11
  push $22
  call two_arguments
  EXPECT %rax $33 2
  EXPECT %rsp %r15 3
  call skips
  .byte 0x0f, 0x0b
after_skip:
  lea rep_ret(%rip), %rax
  call *%rax
  dec %r12d
  jnz loop
  // A pushed address that is also a real return address.
  lea back(%rip), %rax
  push %rax
  jmp rep_ret
back:
  EXPECT %rsp %r15 4
  PASS

.type two_arguments, @function
two_arguments:
  mov 8(%rsp), %rax
  add 16(%rsp), %rax
  ret $16
.type skips, @function
skips:
  addq $2, (%rsp)
  ret
.type rep_ret, @function
rep_ret:
  .byte 0xf3, 0xc3
