// Claim: all six arithmetic flags survive jumps, calls, returns and indirect jumps, whatever
// counting is inserted: flags as results of functions, as arguments, and across indirect jumps.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.macro FLAGS_ARE expected number
  pushfq
  pop %r13
  and $kAll, %r13d
  cmp $\expected, %r13d
  NEED_EQUAL \number
.endm
.macro SET_FLAGS value
  push $\value|2
  popfq
.endm

.type give, @function
give:  // returns the flags in edi
  push %rdi
  popfq
  ret
.type give_far, @function
give_far:  // the same from two levels down, by a tail call
  call give
  jmp 1f
1:
  jmp pass_on
.type pass_on, @function
pass_on:
  ret
.type take, @function
take:  // flags are an argument
  TAKE_FLAGS
  ret
.type take_late, @function
take_late:
  jmp 1f
  nop
1:
  jmp take

_start:
  lea take(%rip), %r14
  lea values(%rip), %r12
next:
  movzwl (%r12), %ebp
  or $2, %ebp
  mov %ebp, %edi
  call give
  TAKE_FLAGS
  movzwl (%r12), %ebp
  EXPECT %eax %ebp 1
  mov %ebp, %edi
  or $2, %edi
  call give_far
  TAKE_FLAGS
  EXPECT %eax %ebp 2
  mov %ebp, %edi
  or $2, %edi
  push %rdi
  popfq
  call take_late
  EXPECT %eax %ebp 3
  push %rdi
  popfq
  call *%r14
  EXPECT %eax %ebp 4
  // Across an indirect jump, a direct one, and a fall-through into a loop head.
  lea landing(%rip), %rdx
  push %rdi
  popfq
  jmp *%rdx
  hlt
landing:
  jmp 1f
1:
  TAKE_FLAGS
  EXPECT %eax %ebp 5
  mov $3, %ecx
  push %rdi
  popfq
2:
  lea -1(%rcx), %ecx
  jrcxz 3f
  jmp 2b
3:
  TAKE_FLAGS
  EXPECT %eax %ebp 6
  // Both ways of each condition.
  mov %edi, %esi
  call conditions
  EXPECT %esi %edi 7
  lea 2(%r12), %r12
  lea values_end(%rip), %rax
  cmp %rax, %r12
  jne next
  PASS

// Rebuilds the flags in esi from conditional jumps alone.
.type conditions, @function
conditions:
  mov $2, %esi
  push %rdi
  popfq
  jnc 1f
  lea 1(%esi), %esi
1:
  jnp 2f
  lea 4(%esi), %esi
2:
  jnz 3f
  lea 0x40(%esi), %esi
3:
  jns 4f
  lea 0x80(%esi), %esi
4:
  jno 5f
  lea 0x800(%esi), %esi
5:
  mov %edi, %eax
  and $0x10, %eax
  lea (%rsi,%rax), %esi
  ret

.section .rodata
values:
  .short 0, 1, 4, 0x10, 0x40, 0x80, 0x800, 0x8d5, 0x8d4, 0x8d1, 0x8c5, 0x895, 0x855, 0xd5, 0x41, 0x881
values_end:
