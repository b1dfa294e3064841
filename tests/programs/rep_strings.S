// Claim: every rep string instruction counts once, however often it repeats, zero included.
// count: once = 1
// count: none = 1
// count: twelve = 12
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"

.bss
.lcomm source, 4096
.lcomm target, 4096
.text
_start:
  cld
  lea source(%rip), %rdi
  mov $0x5a, %eax
  mov $1000, %ecx
once:
  rep stosb
  EXPECT %rcx $0 1
  lea source(%rip), %rsi
  lea target(%rip), %rdi
  mov $125, %ecx
  rep movsq
  lea source(%rip), %rsi
  lea target(%rip), %rdi
  mov $1000, %ecx
  repe cmpsb
  NEED_EQUAL 2
  movb $1, target+500(%rip)
  lea source(%rip), %rsi
  lea target(%rip), %rdi
  mov $1000, %ecx
  repe cmpsb
  EXPECT %rcx $499 3
  lea target(%rip), %rdi
  mov $1, %eax
  mov $1000, %ecx
  repne scasb
  EXPECT %rcx $499 4
  // Zero repetitions: executed, nothing moved, flags of the cmp before survive.
  mov $77, %ebx
  cmp $77, %ebx
  mov $0, %ecx
  repe cmpsb
  NEED_EQUAL 5
  mov $0, %ecx
none:
  rep movsb
  EXPECT %rcx $0 6
  // In a loop, with a different count each time: 12 executions.
  mov $12, %ebx
1:
  mov %ebx, %ecx
  dec %ecx
  lea source(%rip), %rsi
twelve:
  rep lodsb
  dec %ebx
  jnz 1b
  // Backwards.
  std
  lea source+7(%rip), %rsi
  lea target+7(%rip), %rdi
  mov $8, %ecx
  rep movsb
  cld
  lea source-1(%rip), %rax
  EXPECT %rsi %rax 7
  // As the target of a jump, and as the last of a block.
  mov $3, %ecx
  lea target(%rip), %rdi
  jmp 3f
2:
  jmp 4f
3:
  rep stosb
  jmp 2b
4:
  PASS
