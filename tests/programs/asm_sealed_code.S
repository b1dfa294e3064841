// Claim: direct branches to a stub that jumps through a sealed pointer lead where the code is that
// the pointer leads to, also when that code was written again, or unmapped and made anew.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.set kRounds, 3
.set kRead, 1
.set kReadWrite, 3
.set kReadExecute, 5
.set kPrivate, 0x22       // and anonymous
.set kPrivateThere, 0x32  // at that address
.set kMmap, 9
.set kMprotect, 10
.set kMunmap, 11

// Memory for the loader to seal; here the program is its own loader.
.section .data.rel.ro, "aw"
.balign 4096
slot: .quad 0
.balign 4096
.text

// mov $\value, %eax; ret
.macro WRITE value
  KERNEL kMprotect, %r12, $4096, $kReadWrite
  EXPECT %rax $0 90
  movl $(0xb8 | \value << 8), (%r12)
  movw $0xc300, 4(%r12)
  KERNEL kMprotect, %r12, $4096, $kReadExecute
  EXPECT %rax $0 91
.endm

// By a call, a jump and a branch that is taken every other time.
.macro ASK value number
  mov $kRounds, %r13d
8888:
  call stub
  EXPECT %rax $\value \number
  call jumps
  EXPECT %rax $\value \number
  call branches
  EXPECT %rax $\value \number
  dec %r13d
  jnz 8888b
.endm

_start:
  KERNEL kMmap, $0, $4096, $kReadWrite, $kPrivate, $-1
  mov %rax, %r12
  WRITE 5
  mov %r12, slot(%rip)
  lea slot(%rip), %rax
  KERNEL kMprotect, %rax, $4096, $kRead
  EXPECT %rax $0 92
  ASK 5 1
  WRITE 6
  ASK 6 2
  KERNEL kMunmap, %r12, $4096, $0
  EXPECT %rax $0 93
  KERNEL kMmap, %r12, $4096, $kReadWrite, $kPrivateThere, $-1
  EXPECT %rax %r12 94
  WRITE 7
  ASK 7 3
  // Written again while somebody else's pointer.
  lea slot(%rip), %rax
  KERNEL kMprotect, %rax, $4096, $kReadWrite
  lea eight(%rip), %rax
  mov %rax, slot(%rip)
  WRITE 9
  ASK 8 4
  lea slot(%rip), %rax
  KERNEL kMprotect, %rax, $4096, $kRead
  ASK 8 5
  PASS
.size _start, . - _start

.type stub, @function
stub: jmp *slot(%rip)
.size stub, . - stub

.type jumps, @function
jumps:
  mov $1, %ecx
  jmp stub
.size jumps, . - jumps

.type branches, @function
branches:
  test $1, %r13b
  jnz stub
  call stub
  ret
.size branches, . - branches

.type eight, @function
eight:
  mov $8, %eax
  ret
.size eight, . - eight
