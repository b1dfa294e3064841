// Claim: jumps through a register whose flags are made again after comparing (isa/flags_again.h) hand
// flags and registers on as they were: to targets that look at the flags and to others, few targets
// and many, at the first time and later.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.set kTargets, 8

.macro WITH_FLAGS value
  push $\value|2
  popfq
.endm

// Where each of eight jumps may go: odd ones look at the flags, even ones do not.
.macro TARGETS reg
  .irp n, 0, 1, 2, 3, 4, 5, 6, 7
  .balign 16
target_\reg\n:
  .if \n & 1
  pushfq
  pop %rbp
  .else
  test %esp, %esp
  mov $-1, %rbp
  .endif
  lea target_\reg\n(%rip), %r12
  cmp %r12, %\reg       // the register holds where it led
  jne bad_register
  jmp arrived
  .endr
.endm

// What leads there, from r9: the address.  r14 and r15 are added, compared or combined before.
.macro JUMPS reg number
  .balign 16
add_\reg:
  mov %r9, %\reg
  add %r14, %r15
  lea (%r15,%r14), %r13
  jmp *%\reg
  .balign 16
compare_\reg:
  cmp %r14d, %r15d
  mov %r9, %\reg
  jmp *%\reg
  .balign 16
or_\reg:
  or other(%rip), %r15
  mov %r9, %\reg
  mov $0, %r14
  notrack jmp *%\reg
  .balign 16
sum_\reg:
  mov %r9, %\reg
  sub %r14, %\reg
  add %r14, %\reg
  jmp *%\reg
.endm

// Calls `code` natively for the flags to expect, then jumps to each target.
.macro TRY reg code number
  mov $0, %ebx
1:
  cmp $kTargets, %ebx
  je 2f
  mov %ebx, count(%rip)
  lea table_\reg(%rip), %rax
  movslq (%rax,%rbx,4), %r9
  add %rax, %r9
  mov values(%rip), %r14
  imul $0x1e3779b1, %r14, %r14
  add %rbx, %r14
  mov %r14, values(%rip)
  mov %r14, %r15
  bswap %r15
  rol $7, %r15
  lea 3f(%rip), %r11
  // What the flags must be.
  mov %r14, %r8
  mov %r15, %r10
  \code
  pushfq
  pop %rsi
  and $kAll, %esi
  mov count(%rip), %ebx
  mov %r8, %r14
  mov %r10, %r15
  WITH_FLAGS 0
  jmp \number\()f
3:
  mov count(%rip), %ebx
  test $1, %ebx
  jz 4f
  and $kAll, %ebp
  EXPECT %ebp %esi \number
4:
  inc %ebx
  jmp 1b
2:
.endm

.macro TRY_ALL reg
  TRY \reg "add %r14, %r15" 11
  jmp 21f
11:
  jmp add_\reg
21:
  TRY \reg "cmp %r14d, %r15d" 12
  jmp 22f
12:
  jmp compare_\reg
22:
  TRY \reg "or other(%rip), %r15" 13
  jmp 23f
13:
  jmp or_\reg
23:
  // The address is a sum: its flags are those of that addition.
  TRY \reg "mov %r9, %rdi; sub %r14, %rdi; add %r14, %rdi" 14
  jmp 24f
14:
  jmp sum_\reg
24:
.endm

_start:
  movl $3, rounds(%rip)
again:
  TRY_ALL rax
  TRY_ALL rcx
  TRY_ALL rdx
  TRY_ALL rbx
  decl rounds(%rip)
  jnz again
  PASS

arrived:
  jmp *%r11
bad_register:
  FAIL 99

JUMPS rax 1
JUMPS rcx 2
JUMPS rdx 3
JUMPS rbx 4
TARGETS rax
TARGETS rcx
TARGETS rdx
TARGETS rbx

.macro TABLE reg
table_\reg:
  .irp n, 0, 1, 2, 3, 4, 5, 6, 7
  .long target_\reg\n - table_\reg
  .endr
.endm
.section .rodata
TABLE rax
TABLE rcx
TABLE rdx
TABLE rbx
other: .quad 0x8000000000000100
.data
values: .quad 0x123456789abcdef1
rounds: .long 0
count: .long 0
.section .note.GNU-stack,"",@progbits
