// Claim: after `syscall` rcx is the program's own next address and r11 its flags; all other
// registers and the red zone survive; a syscall in a loop and as a jump's target.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  mov $5, %r12d
loop:
  mov $39, %eax
  mov $0x1234567, %rbx
  mov $11, %edi
  mov $12, %esi
  mov $13, %edx
  mov $18, %r8d
  mov $19, %r9d
  mov $20, %r10d
  movq $77, -16(%rsp)
  cmp $5, %r12d
  stc
  pushfq
  pop %r15
  syscall
after:
  pushfq
  pop %r14
  lea after(%rip), %rbp
  EXPECT %rcx %rbp 1
  EXPECT %r11 %r15 2
  EXPECT %r14 %r15 3
  EXPECT %rdi $11 4
  EXPECT %rsi $12 5
  EXPECT %rdx $13 6
  EXPECT %r8 $18 7
  EXPECT %r9 $19 8
  EXPECT %r10 $20 9
  EXPECT %rbx $0x1234567 10
  dec %r12d
  jnz loop
  // The red zone below is not touched by the kernel either.
  movq $99, -24(%rsp)
  mov $39, %eax
  jmp 1f
  nop
1:
  syscall
  cmpq $99, -24(%rsp)
  NEED_EQUAL 11
  // An unknown system call and a failing one.
  mov $9999, %eax
  syscall
  EXPECT %rax $-38 12
  mov $3, %eax
  mov $-1, %edi
  syscall
  EXPECT %rax $-9 13
  PASS
