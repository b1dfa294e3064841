// Claim: the smallest program: no libc, no procedure, one block.
// build: gcc,clang O0 pie,nopie nolibc
// expect: status=13
.globl _start
_start:
  mov $60, %eax
  mov $13, %edi
  syscall
