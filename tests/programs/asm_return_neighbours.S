// Claim: returns go where they should when return addresses lie two bytes apart, when they go one
// byte beside a return address, by `ret` and by `ret n`, and they leave the flags alone.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.bss
.balign 16
.lcomm cell, 16
.text
_start:
  // Each of these calls is two bytes long.
  lea add_one(%rip), %rax
  lea add_ten(%rip), %rdx
  xor %ebx, %ebx
  mov $3, %r12d
1:
  call *%rax
  call *%rdx
  call *%rdx
  call *%rax
  dec %r12d
  jnz 1b
  EXPECT %ebx $66 1
  // Behind the call in turn: its return address, the byte behind it, the byte in front of it, which
  // with what follows is add byte [rax + 0x90909090], dl.
  lea cell(%rip), %rax
  add $0x6f6f6f70, %rax
  mov $1, %edx
  xor %ebx, %ebx
  xor %r13d, %r13d
  mov $6, %r12d
again:
  call nothing
back:
  nop
  nop
  nop
  nop
  nop
  inc %ebx
  inc %r13d
  cmp $2, %r13d
  lea back + 1(%rip), %rcx
  jb by_return
  lea back - 1(%rip), %rcx
  je by_return
  xor %r13d, %r13d
  dec %r12d
  jnz again
  EXPECT %ebx $18 2
  lea cell(%rip), %rax
  cmpb $6, (%rax)
  NEED_EQUAL 3
  // Flags come back with a call, and with a return that goes where none has gone.
  mov $2, %r12d
2:
  stc
  call nothing
  jnc bad
  clc
  call nothing
  jc bad
  stc
  push %rax
  push %rax
  call drops_two
  jnc bad
  lea 3f(%rip), %rcx
  stc
  push %rcx
  ret
3:
  jnc bad
  dec %r12d
  jnz 2b
  PASS
bad:
  FAIL 4

by_return:
  test $1, %r12d
  jz 4f
  push %rcx
  ret
4:
  push %rax
  push %rax
  push %rcx
  ret $16

.type nothing, @function
nothing:
  ret
.type drops_two, @function
drops_two:
  ret $16
.type add_one, @function
add_one:
  add $1, %ebx
  ret
.type add_ten, @function
add_ten:
  add $10, %ebx
  ret
