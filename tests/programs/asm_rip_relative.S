// Claim: rip-relative loads, stores, lea, arithmetic with immediates of all sizes, and code
// addresses taken by lea, call and .quad all show the program's own addresses.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.data
.balign 32
eight: .byte 1
sixteen: .short 0x1234
thirtytwo: .long 0x12345678
sixtyfour: .quad 0x123456789abcdef0
.balign 32
vector: .quad 1, 2, 3, 4
code: .quad 0
.text
_start:
  cmpb $1, eight(%rip)
  NEED_EQUAL 1
  cmpw $0x1234, sixteen(%rip)
  NEED_EQUAL 2
  cmpl $0x12345678, thirtytwo(%rip)
  NEED_EQUAL 3
  movabs $0x123456789abcdef0, %rax
  cmp sixtyfour(%rip), %rax
  NEED_EQUAL 4
  addb $2, eight(%rip)
  xorw $0x1111, sixteen(%rip)
  imul $3, thirtytwo(%rip), %edx
  EXPECT %edx $0x369d0368 5
  shlq $4, sixtyfour(%rip)
  movq $-1, %rcx
  xadd %rcx, sixtyfour(%rip)
  lock incq sixtyfour(%rip)
  movabs $0x23456789abcdef00, %rax
  EXPECT %rcx %rax 6
  cmp %rax, sixtyfour(%rip)
  NEED_EQUAL 7
  btl $1, eight(%rip)
  jnc bad
  movdqu vector(%rip), %xmm1
  paddq vector+16(%rip), %xmm1
  movq %xmm1, %rdx
  EXPECT %rdx $4 8
  xor %eax, %eax
  mov $4, %edx
  xor %ecx, %ecx
  cmpxchg8b vector+24(%rip)
  test %eax, %eax
  push sixtyfour(%rip)
  pop code(%rip)
  cmpxchg %rcx, code(%rip)
  // Code addresses: lea, a pushed return address, a distance between two labels.
  lea here(%rip), %rax
  call read_return
here:
  EXPECT %rdx %rax 9
  lea _start(%rip), %rcx
  sub %rcx, %rax
  mov $(here - _start), %esi
  EXPECT %rax %rsi 10
  lea other(%rip), %rax
  mov %rax, code(%rip)
  jmp *code(%rip)
bad:
  FAIL 11
other:
  lea -8(%rip), %rdx
1:
  lea 1b-8(%rip), %rcx
  EXPECT %rdx %rcx 12
  PASS
.type read_return, @function
read_return:
  mov (%rsp), %rdx
  ret
