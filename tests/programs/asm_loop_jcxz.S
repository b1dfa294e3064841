// Claim: loop, loope, loopne, jrcxz, jecxz: their edges are exact and no flag is touched.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  mov $10, %ecx
  xor %ebx, %ebx
1:
  inc %ebx
  loop 1b
  EXPECT %ebx $10 1
  mov $9, %ecx
  xor %ebx, %ebx
2:
  inc %ebx
  cmp $4, %ebx
  loopne 2b
  EXPECT %ebx $4 2
  mov $9, %ecx
  xor %ebx, %ebx
3:
  inc %ebx
  cmp %ebx, %ebx
  loope 3b
  EXPECT %ebx $9 3
  jrcxz 4f
  FAIL 4
4:
  mov $1, %ecx
  shl $40, %rcx
  jrcxz 5f
  jecxz 6f
5:
  FAIL 5
6:
  stc
  mov $5, %ecx
7:
  loop 7b
  jc 8f
  FAIL 6
8:
  xor %ecx, %ecx
  stc
  jrcxz 9f
  nop
9:
  jc 10f
  FAIL 7
10:
  // loop with a 32-bit counter
  mov $3, %rcx
  bts $35, %rcx
  xor %ebx, %ebx
11:
  inc %ebx
  addr32 loop 11b
  EXPECT %ebx $3 8
  PASS
