// Claim: a jump through a register that is itself jumped to, without what makes its flags in front of
// it, hands on the flags it was jumped to with, though it had been translated together with that; with
// one target and with a table of targets.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"


_start:
  mov $3, %ebx
again:
  lea looks(%rip), %rax
  mov $1, %edi
  mov $2, %esi
  lea first(%rip), %r11
  jmp falls
first:
  EXPECT %ebp $0x4 1      // 3: two bits, an even number
  lea looks(%rip), %rax
  lea second(%rip), %r11
  lea jumps(%rip), %rcx
  push $kAll|2
  popfq
  jmp *%rcx
second:
  EXPECT %ebp $kAll 2
  lea looks(%rip), %rax
  lea third(%rip), %r11
  lea jumps(%rip), %rcx
  push $2
  popfq
  jmp *%rcx
third:
  EXPECT %ebp $0 3
  lea looks(%rip), %rax
  mov $-1, %edi
  mov $1, %esi
  lea fourth(%rip), %r11
  jmp falls
fourth:
  EXPECT %ebp $0x55 4     // 0: carry, parity, adjust and zero
  .irp n, 0, 1, 2, 3, 4, 5
  lea target\n(%rip), %rax
  lea many\n(%rip), %r11
  jmp sums
many\n:
  .endr
  cmp $2, %ebx
  jg skip                 // in the second round the table is there
  lea looks(%rip), %rax
  lea fifth(%rip), %r11
  lea sum_jumps(%rip), %rcx
  push $kAll|2
  popfq
  jmp *%rcx
fifth:
  EXPECT %ebp $kAll 5
skip:
  dec %ebx
  jnz again
  PASS

falls:
  add %esi, %edi
jumps:
  jmp *%rax

sums:
  add %esi, %edi
sum_jumps:
  jmp *%rax
  .irp n, 0, 1, 2, 3, 4, 5
target\n:
  jmp *%r11
  .endr

looks:
  pushfq
  pop %rbp
  and $kAll, %ebp
  jmp *%r11
