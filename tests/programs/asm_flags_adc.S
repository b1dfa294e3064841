// Claim: carry and overflow chains (adc, sbb, adcx, adox, inc/dec beside them, rcl, lahf, sahf, cmc,
// salc-like setc) run across block boundaries unharmed.
// build: gcc,clang O0 pie,nopie nolibc
// needs: adx
#include "include/asm.h"

.data
a: .quad -1, -1, -1, -1, -1, 5
b: .quad 1, 0, 0, 0, 0, 7
.text
_start:
  lea a(%rip), %rsi
  lea b(%rip), %rdi
  mov $6, %ecx
  clc
1:
  mov (%rdi), %rax
  adc %rax, (%rsi)
  lea 8(%rsi), %rsi
  lea 8(%rdi), %rdi
  dec %ecx
  jnz 1b
  jc bad1
  cmpq $13, a+40(%rip)
  NEED_EQUAL 2
  cmpq $0, a+8(%rip)
  NEED_EQUAL 3
  // sbb with a call in the chain
  xor %eax, %eax
  sub $1, %rax
  call subtract
  sbb $0, %rdx
  EXPECT %rdx $3 4
  // two independent chains
  xor %eax, %eax
  mov $-1, %r8
  mov $-1, %r9
  mov $1, %r10
  mov $4, %ecx
  test %eax, %eax
2:
  adcx %r10, %r8
  adox %r10, %r9
  lea -1(%rcx), %rcx
  jrcxz 3f
  jmp 2b
3:
  EXPECT %r8 $4 5
  EXPECT %r9 $4 9
  // lahf and sahf across jumps
  xor %eax, %eax
  mov $0xd5, %ah
  sahf
  jmp 4f
4:
  mov $0, %ah
  lahf
  cmp $0xd7, %ah
  NEED_EQUAL 6
  // rcl through carry in a loop: 8 bits of pattern
  mov $0xb1, %dl
  xor %ebx, %ebx
  mov $8, %ecx
5:
  rcl $1, %dl
  rcl $1, %ebx
  dec %ecx
  jnz 5b
  EXPECT %ebx $0xb1 7
  stc
  jmp 6f
6:
  cmc
  setc %al
  jc bad1
  cmp $0, %al
  NEED_EQUAL 8
  PASS
bad1:
  FAIL 1
.type subtract, @function
subtract:
  mov $5, %edx
  sbb $1, %rdx
  ret
