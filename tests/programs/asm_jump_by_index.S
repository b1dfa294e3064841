// Claim: jumps through tables go where their own instructions lead, whatever their index says: two
// tables at one place, tables that change, indexes alike in their low byte, control that comes to
// the middle of what leads to the jump; and flags and registers pass unharmed.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

#ifndef ROUNDS
#define ROUNDS 4
#define INDEXES 8
#define WIDE_INDEXES 512
#endif

.data
.p2align 2
changing:
  .long one - changing, two - changing, three - changing, four - changing
  .long five - changing, six - changing, seven - changing, looks - changing

.section .rodata
.p2align 2
first:
  .long one - first, two - first, three - first, four - first
  .long five - first, six - first, seven - first, looks - first
.p2align 2
second:
  .long seven - second, six - second, five - second, four - second
  .long three - second, two - second, one - second, looks - second
// As long as two low bytes; the second half is the first turned round.
.p2align 2
wide:
  .rept 64
  .long one - wide, two - wide, three - wide, four - wide
  .endr
  .rept 64
  .long four - wide, three - wide, two - wide, one - wide
  .endr
.text

// Adds what a jump by \how comes back with to r12, for each index of \table.  All of it is one
// procedure, and comes back by a number.
.macro ADD_UP
  lea (%r12, %r12, 2), %r12
  add %rax, %r12
.endm
.macro COME_BACK number how
  mov $\number, %r10d
  jmp \how
back_\number:
  ADD_UP
.endm
// By an indirect jump, into the middle of what leads to another one.
.macro COME_BACK_FROM_MIDDLE number where
  mov $\number, %r10d
  lea \where(%rip), %rsi
  jmp *%rsi
back_\number:
  ADD_UP
.endm

.macro ALL number how table count
  xor %r13d, %r13d
8888:
  lea \table(%rip), %rcx
  mov %r13d, %r15d
  COME_BACK \number \how
  inc %r13d
  cmp $\count, %r13d
  jne 8888b
.endm

.macro TURN_TABLE
  lea changing(%rip), %rdi
  mov (%rdi), %eax
  xchg 8(%rdi), %eax
  mov %eax, (%rdi)
.endm

_start:
  // Never taken: so that all belongs together from the beginning.
  test %esp, %esp
.irp target, one, two, three, four, five, six, seven, looks
  jz \target
.endr
  mov $ROUNDS, %r14d
again:
  xor %r12d, %r12d
  // One that is first come to from elsewhere, behind what makes its flags.
  xor %r15d, %r15d
  lea first(%rip), %rcx
  lea two(%rip), %rax
  COME_BACK_FROM_MIDDLE 16 late_jump
  ALL 17 late first INDEXES
  ALL 18 late second INDEXES
  ALL 19 between first INDEXES
  ALL 1 bounded first INDEXES
  ALL 2 bounded second INDEXES
  ALL 3 bounded changing INDEXES
  ALL 4 masked first INDEXES
  ALL 5 masked wide WIDE_INDEXES
  ALL 6 masked second INDEXES
  ALL 7 behind first INDEXES
  ALL 8 by_rbx first INDEXES
  ALL 9 by_rbx second INDEXES
  // The table changes, and changes again.
  TURN_TABLE
  ALL 10 bounded changing INDEXES
  ALL 11 masked changing INDEXES
  TURN_TABLE
  // In the middle of what leads there: the register is not what the index says.
  xor %r13d, %r13d
into:
  mov %r13d, %r15d
  lea first(%rip), %rcx
  movslq 4(%rcx), %rax
  mov $5, %edx
  COME_BACK_FROM_MIDDLE 12 bounded_add
  lea two(%rip), %rax
  COME_BACK_FROM_MIDDLE 13 bounded_jump
  mov $3, %edx
  COME_BACK_FROM_MIDDLE 14 bounded_load
  lea looks(%rip), %rax
  COME_BACK_FROM_MIDDLE 15 behind_add
  // With an index that nothing has bounded, to a table that is as long.
  mov $301, %edx
  lea wide(%rip), %rcx
  COME_BACK_FROM_MIDDLE 20 between_load
  inc %r13d
  cmp $3, %r13d
  jne into
  // All rounds come to the same.
  cmp $ROUNDS, %r14d
  jne compare
  mov %r12, %rbp
compare:
  EXPECT %r12 %rbp 1
  dec %r14d
  jnz again
  PASS

bounded:
  movzbl %r15b, %edx
bounded_load:
  movslq (%rcx, %rdx, 4), %rax
bounded_add:
  add %rcx, %rax
bounded_jump:
  jmp *%rax

masked:
  mov %r15d, %eax
  movslq (%rcx, %rax, 4), %rax
  add %rcx, %rax
  jmp *%rax

// What comes between the load and the jump makes the flags.
behind:
  mov %r15d, %edx
  and $15, %edx
  movslq (%rcx, %rdx, 4), %rax
  add %rcx, %rax
  mov $-1, %r8d
behind_add:
  add $1, %r8d
  lea 7(%r8), %r9d
  jmp *%rax

between:
  movzbl %r15b, %edx
  mov $1, %r9d
between_load:
  mov $2, %r8d
  mov $3, %r9d
  movslq (%rcx, %rdx, 4), %rax
  add %rcx, %rax
  jmp *%rax

late:
  movzbl %r15b, %edx
  movslq (%rcx, %rdx, 4), %rax
  add %rcx, %rax
late_jump:
  jmp *%rax

by_rbx:
  movzbl %r15b, %ebx
  movslq (%rcx, %rbx, 4), %rbx
  add %rcx, %rbx
  jmp *%rbx

one:
  mov $1, %eax
  jmp back
two:
  mov $2, %eax
  add %r15, %rax
  jmp back
three:
  mov $3, %eax
  jmp back
four:
  mov $4, %eax
  jmp back
five:
  mov $5, %eax
  sub %r15, %rax
  jmp back
six:
  mov $6, %eax
  jmp back
seven:
  mov $7, %eax
  jmp back
// The flags that it was jumped to with.
looks:
  TAKE_FLAGS
back:
.irp number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20
  cmp $\number, %r10d
  je back_\number
.endr
  hlt
.size _start, . - _start
