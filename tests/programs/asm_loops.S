// Claim: loops of one block, whose runs a register tells in later runs and where they are translated
// again, are counted like any others: with the flags live on the ways in and out and without,
// upwards and downwards, one behind the other, reached from several places and left to several, also
// by ways that have counters.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"
#ifndef ROUNDS
#define ROUNDS 20
#endif

_start:
  mov $ROUNDS, %r15d
  xor %r14d, %r14d
rounds:
  // Flags live into the loop and out of it.
  mov $5, %ebx
  stc
up:
  adc $0, %r14
  lea -1(%rbx), %rbx
  cmp $-9, %rbx
  jge up
  adc $0, %r14
  // Another right behind it, downwards by eight.
  mov $80, %esi
down:
  sub $8, %rsi
  jnz down
  // Two ways in, of which the seldom one has a counter, and two ways out.
  mov $9, %r8d
  cmp $1, %r15d
  je both
  lea 3(%r8), %r8
both:
  dec %r8
  jnz both
  jc never
  test $1, %r15b
  jz 2f
  add $24, %r14
2:
  // From the end of one loop to another or past it.
  mov $-240, %rbp
first:
  add $24, %rbp
  js first
  test $2, %r15b
  jz third
  mov $6, %r9d
second:
  dec %r9
  jnz second
third:
  // Where an indirect jump leads there, no register tells.
  mov $3, %r9d
  lea told(%rip), %rax
  jmp *%rax
told:
  dec %r9
  jnz told
  // Into another a return leads as well, which shows at run time only.
  mov $5, %r10d
  lea returned(%rip), %rax
  test $1, %r15b
  jz returned
  push %rax
  ret
returned:
  dec %r10
  jnz returned
  // Into the middle of one of two blocks, which none tells, either.
  mov $9, %r10d
  jmp middle
whole:
  inc %r14
middle:
  dec %r10
  jnz whole
  dec %r15d
  jnz rounds
  PASS
never:
  FAIL 1
