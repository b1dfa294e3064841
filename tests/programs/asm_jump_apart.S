// Claim: two procedures that jump into the middle of each other, call places in the middle of each
// other and return from there, as parts of procedures do that a compiler has laid apart.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.bss
.lcomm which, 8
.lcomm table, 32
.text
.type one, @function
one:
  .cfi_startproc
  mov $6, %r12d
  jmp 1f
called_in_one:
  add $1, %ebx
  ret
1:
  call called_in_other
  lea table(%rip), %rdx
  mov which(%rip), %rcx    # nobody can tell where the table ends
  jmp *(%rdx,%rcx,8)
back:
  add $10, %ebx
  xorl $1, which(%rip)
  dec %r12d
  test $1, %r12d
  jz there
  test %r12d, %r12d
  jg 1b
  ret
  .cfi_endproc
  .size one, .-one

.type other, @function
other:
  .cfi_startproc
  add $100000, %ebx
  ret
there:
  add $100, %ebx
  test %r12d, %r12d
  jnz back
  ret
also_there:
  add $1000, %ebx
  jmp back
called_in_other:
  add $10000, %ebx
  call called_in_one
  jmp called_in_one
  .cfi_endproc
  .size other, .-other

_start:
  lea there(%rip), %rax
  mov %rax, table(%rip)
  lea also_there(%rip), %rax
  mov %rax, 8+table(%rip)
  xor %ebx, %ebx
  call one
  call other
  EXPECT %ebx $143468 1
  PASS
