// Claim: jumps into the middle of a block that ran before from its top.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  xor %ebx, %ebx
  mov $3, %r12d
again:
  add $1, %ebx
  add $10, %ebx
middle:
  add $100, %ebx
tail:
  add $1000, %ebx
  cmp $5000, %ebx
  jg out
  dec %r12d
  jz again
  cmp $1, %r12d
  je middle
  jmp tail
out:
  EXPECT %ebx $5322 1
  PASS
