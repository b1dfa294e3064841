// Claim: procedures that return by a jump to what they pop, as compilers write returns against load
// value injection, come back behind their call; one that pops what it has pushed jumps there.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

#define POP_AND_JUMP(register) \
  pop register; .cfi_adjust_cfa_offset -8; .cfi_register rip, register; lfence; jmp *register

PROCEDURE(leaf)
  add $1, %rbx
  POP_AND_JUMP(%rcx)
END(leaf)

// Its callees come back to where they were called from, too.
PROCEDURE(framed)
  push %rbp
  .cfi_adjust_cfa_offset 8
  .cfi_offset rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register rbp
  sub $32, %rsp
  call leaf
  call leaf
  leave
  .cfi_def_cfa rsp, 8
  .cfi_restore rbp
  POP_AND_JUMP(%r11)
END(framed)

// As often as rdi says, one in another; each level comes back by itself.
PROCEDURE(recursive)
  add $100, %rbx
  test %edi, %edi
  jz 1f
  sub $1, %edi
  call recursive
1:
  POP_AND_JUMP(%r8)
END(recursive)

// Comes back two bytes behind its call.
PROCEDURE(skips)
  addq $2, (%rsp)
  POP_AND_JUMP(%rdx)
END(skips)

// Returns by what it has pushed: a jump.
PROCEDURE(pushes)
  lea leaf(%rip), %rax
  push %rax
  pop %rcx
  jmp *%rcx
END(pushes)

PROCEDURE(_start)
  .cfi_undefined rip
  xor %ebx, %ebx
  mov $50, %r12d
again:
  call leaf
  call framed
  mov $3, %edi
  call recursive
  lea framed(%rip), %rax
  lea leaf(%rip), %rcx
  test $1, %r12b
  cmovnz %rcx, %rax
  call *%rax
  call skips
  ud2
  call pushes
  sub $1, %r12d
  jnz again
  EXPECT %ebx $20275 1
  PASS
END(_start)
