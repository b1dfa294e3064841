// Claim: unusual stacks: rsp in the middle of a buffer, rsp as a general register, pushes of rsp,
// leave/enter, returns after the stack has moved, ret to a callee's own frame.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.bss
.balign 16
.lcomm stack, 8192
.text
_start:
  mov %rsp, %r15
  lea stack+8192(%rip), %rsp
  mov $7, %ecx
  call count_down
  EXPECT %eax $7 1
  push %rsp
  pop %rax
  EXPECT %rax %rsp 2
  enter $64, $0
  movq $3, -8(%rbp)
  call leaf
  leave
  lea stack+8192(%rip), %rax
  EXPECT %rsp %rax 3
  // A coroutine: the return address is taken away and comes back on the other stack.
  call detour
  EXPECT %rsp %r15 4
  // rsp holds something that is no stack, between two blocks that need none.
  mov %rsp, %r14
  mov $12, %esp
1:
  dec %rsp
  jnz 1b
  mov %r14, %rsp
  // An unaligned stack.
  sub $3, %rsp
  call leaf
  add $3, %rsp
  PASS
.type count_down, @function
count_down:
  xor %eax, %eax
  dec %ecx
  jz 1f
  call count_down
1:
  inc %eax
  ret
.type leaf, @function
leaf:
  movq $5, -120(%rsp)
  cmpq $5, -120(%rsp)
  NEED_EQUAL 9
  ret
.type detour, @function
detour:
  pop %rax
  mov %r15, %rsp
  push %rax
  ret
