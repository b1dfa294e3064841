// Claim: conditional tail jumps into other procedures, jumps backwards before an entry, procedures
// that share a tail, an entry that falls through from another one.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

_start:
  xor %ebx, %ebx
  mov $9, %r12d
loop:
  mov %r12d, %edi
  call one
  mov %r12d, %edi
  call two
  mov %r12d, %edi
  call three
  dec %r12d
  jnz loop
  EXPECT %ebx $464 1
  PASS
.type shared, @function
shared:
  add $5, %ebx
  ret
.size shared, .-shared
.type one, @function
one:
  add $1, %ebx
  test $1, %edi
  jz shared
  add $2, %ebx
.size one, .-one
.type two, @function
two:  // one falls into it
  add $3, %ebx
  cmp $4, %edi
  ja three_inside
  ret
.size two, .-two
  ud2
before_three:
  add $40, %ebx
  ret
.type three, @function
three:
  add $7, %ebx
  test $3, %edi
  jz before_three
three_inside:
  add $11, %ebx
  jmp shared
.size three, .-three
