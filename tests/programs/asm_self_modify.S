// Claim: a loop that patches its own immediate operands: in the next block, and in the same block
// right in front of where it runs.
// build: gcc,clang O0 pie,nopie nolibc
// inexact: the code that makes itself writable was translated before
#include "include/asm.h"

_start:
  // mprotect(page of the loop, 4096, read + write + execute)
  mov $10, %eax
  lea code(%rip), %rdi
  mov $4096, %esi
  mov $7, %edx
  syscall
  test %rax, %rax
  NEED_EQUAL 9
  xor %ebx, %ebx
  mov $20, %r12d
  jmp code

  .balign 4096
code:
  mov %r12d, next + 1(%rip)    // changes the next block
  mov %r12d, same + 1(%rip)    // and this one
same:
  mov $0, %eax
  add %eax, %ebx
  jmp next
next:
  mov $0, %eax
  add %eax, %ebx
  dec %r12d
  jnz code
  EXPECT %ebx $420 1
  jmp done
  .balign 4096
done:
  PASS
