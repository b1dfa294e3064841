// Claim: fxsave, xsave, xrstor, xgetbv, cpuid, rdtsc, clflush, prefetch and fences are copied as
// they are.
// build: gcc,clang O0 pie,nopie nolibc
// needs: xsave
#include "include/asm.h"

.bss
.balign 64
.lcomm area, 16384
.text
_start:
  mov $0x5555aaaa, %eax
  movd %eax, %xmm7
  lea area+63(%rip), %rdi
  and $-64, %rdi
  fxsave (%rdi)
  pxor %xmm7, %xmm7
  fxrstor (%rdi)
  movd %xmm7, %edx
  EXPECT %edx $0x5555aaaa 1
  xor %ecx, %ecx
  xgetbv
  and $7, %eax
  xor %edx, %edx
  mov %eax, %r12d
  add $4096, %rdi
  xsave (%rdi)
  pxor %xmm7, %xmm7
  mov %r12d, %eax
  xrstor (%rdi)
  movd %xmm7, %edx
  EXPECT %edx $0x5555aaaa 2
  xor %eax, %eax
  cpuid
  test %eax, %eax
  jz bad
  rdtsc
  mov %eax, %r12d
  mfence
  lfence
  sfence
  prefetcht0 (%rdi)
  clflush (%rdi)
  pause
  PASS
bad:
  FAIL 3
