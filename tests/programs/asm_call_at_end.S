// Claim: a call (direct, indirect, never back) and a `syscall` that end code which only an indirect
// jump leads to, in front of code that was known before, come back there: their edges lead into it.
// So does a call of something that never returns by its name, and does.
// build: gcc,clang O0 pie,nopie nolibc
// oracle: step
// count: behind_call = 3
// count: behind_indirect = 2
// count: behind_syscall = 2
#include "include/asm.h"

_start:
  .cfi_startproc
  .cfi_undefined %rip
  xor %ebx, %ebx
  js behind_call
  js behind_indirect
  js behind_syscall
  js behind_last
  mov $7, %r12d
loop:
  lea late_call(%rip), %rax
  cmp $5, %r12d
  ja go
  lea late_indirect(%rip), %rax
  cmp $3, %r12d
  ja go
  lea late_syscall(%rip), %rax
  cmp $1, %r12d
  ja go
  je elsewhere
  lea late_last(%rip), %rax
go:
  jmp *%rax

late_call:
  call add_one
behind_call:
  add $2, %ebx
  jmp next
late_indirect:
  lea add_one(%rip), %rdx
  call *%rdx
behind_indirect:
  add $4, %ebx
  jmp next
late_syscall:
  mov $39, %eax
  syscall
behind_syscall:
  add $8, %ebx
next:
  dec %r12d
  jmp loop
late_last:
  call finish
behind_last:
  hlt
  .cfi_endproc
.size _start, .-_start

.type elsewhere, @function
elsewhere:
  .cfi_startproc
  call abort
  add $16, %ebx
  jmp behind_call
  .cfi_endproc
.size elsewhere, .-elsewhere

.type add_one, @function
add_one:
  .cfi_startproc
  add $1, %ebx
  ret
  .cfi_endproc
.size add_one, .-add_one

.globl abort
.type abort, @function
abort:
  .cfi_startproc
  ret
  .cfi_endproc
.size abort, .-abort

.type finish, @function
finish:
  .cfi_startproc
  EXPECT %ebx $50 1
  PASS
  .cfi_endproc
.size finish, .-finish
