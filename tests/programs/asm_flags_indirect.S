// Claim: flags pass unharmed through one indirect jump, indirect call and return place whose targets
// differ: some look at the flags, others set them first, in every order of first arrival.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"


.macro WITH_FLAGS value
  push $\value|2
  popfq
.endm

_start:
  mov $kAll, %ebp
  mov $3, %r15d
again:
  // First a target that sets the flags before it looks at them, then one that looks.
  lea sets(%rip), %rdx
  call jump_all
  lea looks(%rip), %rdx
  call jump_all
  EXPECT %eax %ebp 1
  lea sets_too(%rip), %rdx
  call jump_all
  lea looks_too(%rip), %rdx
  call jump_all
  EXPECT %eax %ebp 2
  // The same through a call.
  lea sets(%rip), %rdx
  call call_all
  lea looks(%rip), %rdx
  call call_all
  EXPECT %eax %ebp 3
  lea looks_too(%rip), %rdx
  call call_all
  EXPECT %eax %ebp 4
  dec %r15d
  jnz again
  PASS

.type jump_all, @function
jump_all:
  WITH_FLAGS kAll
  jmp *%rdx

.type call_all, @function
call_all:
  WITH_FLAGS kAll
  call *%rdx
  ret

.type sets, @function
sets:
  cmp %esp, %esp
  mov $1, %eax
  ret
.type sets_too, @function
sets_too:
  xor %eax, %eax
  ret
.type looks, @function
looks:
  TAKE_FLAGS
  ret
.type looks_too, @function
looks_too:
  TAKE_FLAGS
  ret
