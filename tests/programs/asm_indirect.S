// Claim: indirect jumps and calls in all addressing forms: memory with index, through rsp, through
// rcx and r11 (registers a translator likes to take), rip-relative, with red zone data alive.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.macro SLOT n
  lea t\n(%rip), %rax
  mov %rax, table+8*\n(%rip)
.endm
.bss
.lcomm table, 64
.text
_start:
  mov %rsp, %r15
  SLOT 0
  SLOT 1
  SLOT 2
  SLOT 3
  SLOT 4
  xor %ebx, %ebx
  movabs $0x1122334455667788, %rax
  mov %rax, -8(%rsp)
  mov %rax, -128(%rsp)
  lea table(%rip), %r11
  xor %ecx, %ecx
  jmp *(%r11,%rcx,8)
t0:
  inc %ebx
  inc %ecx
  jmp *(%r11,%rcx,8)
t1:
  inc %ebx
  jmp *table+16(%rip)
t2:
  inc %ebx
  mov table+24(%rip), %rcx
  jmp *%rcx
t3:
  inc %ebx
  mov table+32(%rip), %r11
  jmp *%r11
t4:
  inc %ebx
  EXPECT %ebx $5 1
  cmp %rax, -8(%rsp)
  NEED_EQUAL 2
  cmp %rax, -128(%rsp)
  NEED_EQUAL 3
  // Calls: the operand is read before the return address is pushed.
  lea f(%rip), %rax
  push %rax
  push $0
  call *8(%rsp)
  EXPECT %ebx $6 4
  mov %rax, %rcx
  call *%rcx
  mov %rax, %r11
  call *%r11
  mov %rax, (%rsp)
  call *(%rsp)
  mov %rsp, %rcx
  mov $1, %r11d
  call *(%rcx,%r11,8)
  mov %rsp, %r11
  mov $-1, %rcx
  call *16(%r11,%rcx,8)
  EXPECT %ebx $11 5
  lea table(%rip), %rcx
  mov %rax, (%rcx)
  call *table(%rip)
  add $16, %rsp
  EXPECT %ebx $12 6
  // The jump target lies on the stack at rsp.
  lea 1f(%rip), %rax
  push %rax
  jmp *(%rsp)
  hlt
1:
  pop %rcx
  EXPECT %rcx %rax 7
  EXPECT %rsp %r15 8
  PASS
.type f, @function
f:
  inc %ebx
  ret
