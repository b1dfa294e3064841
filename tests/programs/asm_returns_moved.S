// Claim: procedures that move their return address up, over arguments that they pop so, come back
// behind their call.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

// One argument, two, and two behind a frame's end.
PROCEDURE(takes_one)
  add 8(%rsp), %rbx
  pop %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  lea 8(%rsp), %rsp
  push %rcx
  ret
END(takes_one)

PROCEDURE(takes_two)
  add 8(%rsp), %rbx
  add 16(%rsp), %rbx
  mov (%rsp), %rcx
  mov %rcx, 16(%rsp)
  add $16, %rsp
  .cfi_adjust_cfa_offset -16
  ret
END(takes_two)

PROCEDURE(with_frame)
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_offset rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register rbp
  sub $32, %rsp
  add 16(%rbp), %rbx
  add 24(%rbp), %rbx
  leave
  .cfi_def_cfa rsp, 8
  .cfi_restore rbp
  pop %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  add $16, %rsp
  push %rcx
  ret
END(with_frame)

PROCEDURE(_start)
  .cfi_undefined rip
  xor %ebx, %ebx
  mov $50, %r12d
again:
  push $1
  call takes_one
  push $20
  push $3
  call takes_two
  push $400
  push $5
  call with_frame
  sub $1, %r12d
  jnz again
  EXPECT %ebx $21450 1
  PASS
END(_start)
