// Claim: branches through pointers in memory that the program makes read-only lead where these
// lead, also when they have become others meanwhile: written, mapped over, moved there, or left
// writable by a call that failed half way; and flags and registers pass unharmed.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.set kSum, 0x55   // of -1 + 1
.set kRounds, 3
.set kRead, 1
.set kReadWrite, 3
.set kMmap, 9
.set kMprotect, 10
.set kMunmap, 11
.set kMremap, 25

// All of it in memory for the loader to seal; here the program is its own loader.
.section .data.rel.ro, "aw"
.balign 4096
slot: .quad 0
.balign 4096
neighbour: .skip 4096
.text

// Sites of each phase's own: those that are first taken while the pointer is writable compare for
// good.
.macro SITES phase
.type jump_\phase, @function
jump_\phase: jmp *slot(%rip)
.size jump_\phase, . - jump_\phase
.type call_\phase, @function
call_\phase:
  call *slot(%rip)
  lea 1(%rax), %rax
  ret
.size call_\phase, . - call_\phase
.endm

.macro ASK phase want number
  mov $kRounds, %r13d
8888:
  mov $0x123456789, %rcx
  xor %eax, %eax
  mov $-1, %r8d
  add $1, %r8d
  call jump_\phase
  EXPECT %rax $\want \number
  mov $-1, %r8d
  add $1, %r8d
  call call_\phase
  EXPECT %rax, $\want + 1, \number
  mov $0x123456789, %rdx
  EXPECT %rcx %rdx \number
  dec %r13d
  jnz 8888b
.endm

.macro KERNEL_AT number, place, a1, a2, a3=$0, a4=$0
  lea \place(%rip), %rdi
  KERNEL \number, %rdi, \a1, \a2, \a3, \a4
.endm
.macro PROTECT protection
  KERNEL_AT kMprotect, slot, $4096, $\protection
  EXPECT %rax $0 90
.endm
.macro SET target
  lea \target(%rip), %rax
  mov %rax, slot(%rip)
.endm

_start:
  // Before it is sealed, by sites of its own.
  SET one
  ASK a 1 1
  PROTECT kRead
  ASK b 1 2
  // Written, and sealed again.
  PROTECT kReadWrite
  SET two
  ASK b 2 3
  PROTECT kRead
  ASK a 2 4
  ASK b 2 5
  ASK c 2 6
  // Mapped over.
  KERNEL_AT kMmap, slot, $4096, $kReadWrite, $0x32, $-1
  SET looks
  ASK c kSum 7
  PROTECT kRead
  ASK d kSum 8
  // Moved there.
  mov $kMmap, %eax
  xor %edi, %edi
  mov $4096, %esi
  mov $kReadWrite, %edx
  mov $0x22, %r10d
  mov $-1, %r8
  xor %r9d, %r9d
  syscall
  mov %rax, %rdi
  lea three(%rip), %rax
  mov %rax, (%rdi)
  mov $4096, %esi
  mov $4096, %edx
  mov $3, %r10d
  lea slot(%rip), %r8
  mov $kMremap, %eax
  syscall
  lea slot(%rip), %rdx
  EXPECT %rax %rdx 91
  ASK d 3 9
  PROTECT kRead
  ASK e 3 10
  // Half of this fails, and half does not.
  KERNEL_AT kMunmap, neighbour, $4096, $0
  KERNEL_AT kMprotect, slot, $8192, $kReadWrite
  EXPECT %rax $-12 92
  SET four
  ASK e 4 11
  ASK a 4 12
  PASS
.size _start, . - _start

SITES a
SITES b
SITES c
SITES d
SITES e

.irp number, 1, 2, 3, 4
.type way_\number, @function
way_\number:
  mov $\number, %eax
  ret
.size way_\number, . - way_\number
.endr
.set one, way_1
.set two, way_2
.set three, way_3
.set four, way_4

.type looks, @function
looks:
  TAKE_FLAGS
  ret
.size looks, . - looks
