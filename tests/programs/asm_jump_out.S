// Claim: a hand-written longjmp out of a recursion, as glibc's is: its call frame information speaks
// of where it goes to long before it goes there, and registers of the target are there before that.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.type save, @function
save:
  .cfi_startproc
  mov %rbx, (%rdi)
  mov %rbp, 8(%rdi)
  lea 8(%rsp), %rdx
  mov %rdx, 16(%rdi)
  mov (%rsp), %rdx
  mov %rdx, 24(%rdi)
  xor %eax, %eax
  ret
  .cfi_endproc
  .size save, .-save

.type jump_out, @function
jump_out:
  .cfi_startproc
  mov 16(%rdi), %r8
  mov 8(%rdi), %r9
  mov 24(%rdi), %rdx
  test %rdx, %rdx
  je nowhere
  .cfi_def_cfa %rdi, 0
  .cfi_register %rsp, %r8
  .cfi_register %rbp, %r9
  .cfi_register %rip, %rdx
  .cfi_offset %rbx, 0
  mov (%rdi), %rbx
  mov $1, %eax
  mov %r8, %rsp
  mov %r9, %rbp
  jmp *%rdx
nowhere:
  ud2
  .cfi_endproc
  .size jump_out, .-jump_out

#ifdef BY_RETURN
.type return_out, @function
return_out:
  .cfi_startproc
  mov (%rdi), %rbx
  mov 8(%rdi), %rbp
  mov 24(%rdi), %rdx
  mov $1, %eax
  mov 16(%rdi), %rsp
  push %rdx
  ret
  .cfi_endproc
  .size return_out, .-return_out
#endif

.macro RETURN_FROM_DEEP
  pop %rbx
  pop %rbp
  .cfi_remember_state
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_restore_state
.endm

.type deep, @function
deep:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  push %rbx
  .cfi_offset %rbx, -24
  mov %edi, %ebx
  test %edi, %edi
  je bottom
  lea -1(%rbx), %edi
  call deep
  add %ebx, %eax
  RETURN_FROM_DEEP
bottom:
  mov %r13d, %eax
  test $1, %r13d
  lea buffer(%rip), %rdi
  jne leave
  RETURN_FROM_DEEP
leave:
#ifdef BY_RETURN
  call return_out
#else
  call jump_out
#endif
  .cfi_endproc
  .size deep, .-deep

.type work, @function
work:
  .cfi_startproc
  push %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  mov %rsp, %rbp
  .cfi_def_cfa_register %rbp
  lea buffer(%rip), %rdi
  call save
  test %eax, %eax
  jne back
  mov $3, %edi
  call deep
  pop %rbp
  .cfi_remember_state
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_restore_state
back:
  mov $100, %eax
  pop %rbp
  .cfi_def_cfa %rsp, 8
  ret
  .cfi_endproc
  .size work, .-work

_start:
  xor %r12d, %r12d
  mov $4, %r13d
again:
  call work
  add %eax, %r12d
  dec %r13d
  jnz again
  EXPECT %r12d $218 1
  PASS

.bss
.balign 8
buffer: .skip 32
