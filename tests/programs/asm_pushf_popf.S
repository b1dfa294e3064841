// Claim: pushf, popf and the direction flag work in translated code; no trap flag shows.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.bss
.lcomm buffer, 64
.text
_start:
  xor %eax, %eax
  pushfq
  pop %rax
  test $0x100, %eax
  NEED_EQUAL 1
  push %rax
  or $0x400, %rax
  push %rax
  popfq
  jmp 1f
1:
  lea buffer+63(%rip), %rdi
  mov $0x41, %al
  mov $64, %ecx
  call fill
  popfq
  pushfq
  pop %rax
  test $0x400, %eax
  NEED_EQUAL 2
  lea buffer-1(%rip), %rdx
  EXPECT %rdi %rdx 3
  cmpb $0x41, buffer(%rip)
  NEED_EQUAL 4
  // The identification flag can be toggled, so popf really loads.
  pushfq
  pop %rax
  xor $0x200000, %rax
  push %rax
  popfq
  pushfq
  pop %rdx
  and $~0xff, %rax
  and $~0xff, %rdx
  EXPECT %rdx %rax 5
  pushfw
  popfw
  PASS
.type fill, @function
fill:
1:
  stosb
  loop 1b
  ret
