// Claim: `mov ss` (which delays interrupts by one instruction), segment reads, swapped-in prefixes
// and long nops are copied as they are.
// count: after_ss = 6
// count: jump_after_ss = 6
// count: landed = 6
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  mov $6, %r12d
loop:
  mov %ss, %eax
  mov %eax, %ss
after_ss:
  inc %ebx
  mov %ss, %eax
  mov %eax, %ss
jump_after_ss:
  jmp landed
  hlt
landed:
  mov %cs, %edx
  EXPECT %edx $0x33 1
  .byte 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0
  .byte 0x3e, 0x90
  .byte 0x48, 0x66, 0x90
  .byte 0xf3, 0x90
  endbr64
  dec %r12d
  jnz loop
  EXPECT %ebx $6 2
  PASS
