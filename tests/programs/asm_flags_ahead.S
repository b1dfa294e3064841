// Claim: flags that are looked at late, behind what a callee keeps first, in what it calls, or where
// a branch leaves to, survive counting; where they are set first, the counts are the same.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.macro KEEP
  push %r15
  push %r14
  push %r13
  push %r12
  push %rbp
  push %rbx
  mov %rsi, %r15
  lea 8(%rsi), %r14
.endm
.macro DROP
  pop %rbx
  pop %rbp
  pop %r12
  pop %r13
  pop %r14
  pop %r15
.endm

.type take, @function
take:  // flags are an argument
  TAKE_FLAGS
  ret
.type take_behind, @function
take_behind:  // keeps registers first
  KEEP
  TAKE_FLAGS
  DROP
  ret
.type take_far_behind, @function
take_far_behind:  // farther than anyone looks
  KEEP
  DROP
  KEEP
  TAKE_FLAGS
  DROP
  ret
.type take_below, @function
take_below:  // in what it calls
  push %rbx
  call take_behind
  pop %rbx
  ret
.type carry_behind, @function
carry_behind:  // one of them
  KEEP
  setc %al
  movzbl %al, %eax
  DROP
  ret
.type set_behind, @function
set_behind:  // none
  KEEP
  xor %eax, %eax
  DROP
  ret
.type around, @function
around:  // calls itself before anything else, once
  jrcxz 1f
  xor %ecx, %ecx
  call around
1:
  ret

// Both ways of a condition leave the procedure, or one of them; the way is counted on the edge.
.type leave_both, @function
leave_both:
  jc take_behind
  jmp take
.type leave_one, @function
leave_one:
  jnc 1f
  jnz take_behind
  jmp take_below
1:
  jmp take_far_behind
.type leave_set, @function
leave_set:
  jc set_behind
  jmp 1f
1:
  jz set_behind
  jmp carry_behind
.type fall_out, @function
fall_out:  // into the next procedure
  jc 1f
  nop
1:
  lea 8(%rsi), %rdx
.type fallen_into, @function
fallen_into:
  TAKE_FLAGS
  ret

.macro FLAGS_FOR procedure
  push %rdi
  popfq
  call \procedure
.endm

_start:
  lea values(%rip), %r12
next:
  movzwl (%r12), %ebp
  mov %ebp, %edi
  or $2, %edi
  FLAGS_FOR take_behind
  EXPECT %eax %ebp 1
  FLAGS_FOR take_far_behind
  EXPECT %eax %ebp 2
  FLAGS_FOR take_below
  EXPECT %eax %ebp 3
  FLAGS_FOR leave_both
  EXPECT %eax %ebp 4
  FLAGS_FOR leave_one
  EXPECT %eax %ebp 5
  FLAGS_FOR fall_out
  EXPECT %eax %ebp 6
  mov %ebp, %ebx
  and $1, %ebx
  FLAGS_FOR carry_behind
  EXPECT %eax %ebx 7
  FLAGS_FOR leave_set
  EXPECT %eax $0 8
  mov $1, %ecx
  FLAGS_FOR around
  lea 2(%r12), %r12
  lea values_end(%rip), %rax
  cmp %rax, %r12
  jne next
  PASS

.section .rodata
values:
  .short 0, 1, 4, 0x10, 0x40, 0x80, 0x800, 0x8d5, 0x8d4, 0x8d1, 0x8c5, 0x895, 0x855, 0xd5, 0x41, 0x881
values_end:
