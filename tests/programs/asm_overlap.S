// Claim: a jump into the middle of an instruction (two overlapping decodings of the same bytes)
// counts both, each at its own addresses.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  mov $5, %r12d
  xor %ebx, %ebx
loop:
  lea inside(%rip), %rdx
  test $1, %r12d
  jz direct
  // As one: mov eax, 0x9003c383; inside: add ebx, 3; nop
outside:
  .byte 0xb8
inside:
  .byte 0x83, 0xc3, 0x03, 0x90
  dec %r12d
  jnz loop
  EXPECT %ebx $6 1
  EXPECT %eax $0x9003c383 2
  // The classic: jmp back one byte, into its own displacement. eb ff c0 = jmp +1-; ff c0 = inc eax
  xor %eax, %eax
  .byte 0xeb, 0xff, 0xc0
  EXPECT %eax $1 3
  // A lock prefix that is jumped over the first time.
  movl $4, -8(%rsp)
  xor %ecx, %ecx
  jmp 1f + 1
1:
  lock addl $3, -8(%rsp)
  inc %ecx
  cmp $3, %ecx
  jb 1b
  cmpl $13, -8(%rsp)
  NEED_EQUAL 4
  jmp done
direct:
  jmp *%rdx
done:
  PASS
