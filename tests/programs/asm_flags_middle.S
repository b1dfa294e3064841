// Claim: a jump through a register that is itself jumped to, without what makes its flags in front of
// it, hands on the flags it was jumped to with, though it had been translated together with that.
// It is translated a second time then, so there are two blocks: the counts are of instructions.
// build: gcc,clang O0 pie,nopie nolibc
// oracle: output
// count: falls = 6
// count: jumps = 12
// count: looks = 12
#include "include/asm.h"

.set kAll, 0x8d5  // CF PF AF ZF SF OF

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
  dec %ebx
  jnz again
  PASS

falls:
  add %esi, %edi
jumps:
  jmp *%rax

looks:
  pushfq
  pop %rbp
  and $kAll, %ebp
  jmp *%r11
