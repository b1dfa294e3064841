// Claim: a procedure that changes the address that it returns to, in the block that returns, leaves
// its call open for good and comes back where it says; what a compiler makes of indirect calls
// against speculation is a jump.
// build: gcc,clang O0 pie,nopie nolibc
#include "include/asm.h"
_start:
  .cfi_startproc
  .cfi_undefined rip
  mov $200, %ebx
  xor %ebp, %ebp
again:
  // Comes back three bytes farther on, but for each fifth time.
  call skips_mostly
  add $1, %ebp
  call skips
  ud2
  nop
  call skips_with_register
  ud2
  nop
  call goes_where_it_saved
  ud2
saved:
  push $5
  call skips_and_takes_one
  ud2
  nop
  // Come back as they should.
  call puts_it_back
  call loads_flags
#ifdef BEHIND_A_CALL
  // Behind a call that is made each third time only, and the first time.
  mov %ebx, %eax
  xor %edx, %edx
  mov $3, %ecx
  div %ecx
  cmp $2, %edx
  je really
  lea behind(%rip), %rax
  push %rax
  .cfi_adjust_cfa_offset 8
  ret
  .cfi_adjust_cfa_offset -8
really:
  call does_nothing
behind:
#endif
  // Through what a compiler makes of an indirect call against speculation.
  lea does_nothing(%rip), %rax
  lea adds(%rip), %rcx
  test $1, %bl
  cmovnz %rcx, %rax
  call through_rax
  sub $1, %ebx
  jnz again
  EXPECT %ebp, $100040, 1
  PASS
  .cfi_endproc
  .size _start, .-_start

PROCEDURE(skips_mostly)
  mov %ebx, %eax
  xor %edx, %edx
  mov $5, %ecx
  div %ecx
  test %edx, %edx
  jz as_it_should
  addq $3, (%rsp)
  ret
as_it_should:
  ret
END(skips_mostly)

PROCEDURE(skips)
  sub $24, %rsp
  .cfi_adjust_cfa_offset 24
  movq $7, 8(%rsp)
  addq $3, 24(%rsp)
  add $24, %rsp
  .cfi_adjust_cfa_offset -24
  ret
END(skips)

PROCEDURE(skips_with_register)
  pop %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  lea 3(%rcx), %rcx
  push %rcx
  .cfi_adjust_cfa_offset 8
  .cfi_offset rip, -8
  ret
END(skips_with_register)

// What it puts over its return address has lain below it.
PROCEDURE(goes_where_it_saved)
  lea saved(%rip), %rax
  push %rax
  .cfi_adjust_cfa_offset 8
  test %rax, %rax
  jz 1f
1:
  mov (%rsp), %rax
  mov %rax, 8(%rsp)
  pop %rcx
  .cfi_adjust_cfa_offset -8
  ret
END(goes_where_it_saved)

// Its return address is moved, and changed.
PROCEDURE(skips_and_takes_one)
  pop %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  lea 8(%rsp), %rsp
  add $3, %rcx
  push %rcx
  ret
END(skips_and_takes_one)

PROCEDURE(puts_it_back)
  pop %rcx
  .cfi_adjust_cfa_offset -8
  .cfi_register rip, rcx
  push %rcx
  .cfi_adjust_cfa_offset 8
  .cfi_offset rip, -8
  ret
END(puts_it_back)

PROCEDURE(loads_flags)
  push %rbx
  .cfi_adjust_cfa_offset 8
  popfq
  .cfi_adjust_cfa_offset -8
  ret
END(loads_flags)

PROCEDURE(does_nothing)
  ret
END(does_nothing)

PROCEDURE(adds)
  add $1000, %ebp
  ret
END(adds)

PROCEDURE(through_rax)
  call 2f
1:
  pause
  jmp 1b
2:
  .cfi_adjust_cfa_offset 8
  mov %rax, (%rsp)
  ret
END(through_rax)
.section .note.GNU-stack,"",@progbits
