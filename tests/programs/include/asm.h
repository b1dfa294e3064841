// Macros for programs in assembly: exit, and checks that exit with a number of their own.
// A program defines _start and ends with PASS.  Procedures may be written between PROCEDURE and
// END.

#define PROCEDURE(name)  \
  .p2align 4;            \
  .type name, @function; \
  name:                  \
  .cfi_startproc
#define END(name) \
  .cfi_endproc;   \
  .size name, .- name

.macro FAIL number
  mov $\number, %edi
  mov $231, %eax
  syscall
.endm

// Goes on when the flags say "equal", else exits with `number`.
.macro NEED_EQUAL number
  je 9999f
  FAIL \number
9999:
.endm

// Goes on when register `a` holds `b` (register or immediate).
.macro EXPECT a b number
  cmp \b, \a
  NEED_EQUAL \number
.endm

// A system call of up to five arguments, registers or immediates; changes what carries them.
.macro KERNEL number, a0, a1, a2, a3=$0, a4=$0
  mov \a0, %rdi
  mov \a1, %rsi
  mov \a2, %rdx
  mov \a3, %r10
  mov \a4, %r8
  xor %r9d, %r9d
  mov $\number, %eax
  syscall
.endm

.set kAll, 0x8d5  // CF PF AF ZF SF OF

// The flags, in eax.
.macro TAKE_FLAGS
  pushfq
  pop %rax
  and $kAll, %eax
.endm

.macro PASS
  mov $1, %edi
  lea passed_text(%rip), %rsi
  mov $7, %edx
  mov $1, %eax
  syscall
  xor %edi, %edi
  mov $231, %eax
  syscall
  hlt
.endm

.section .rodata
passed_text: .ascii "passed\n"
.text
.globl _start
.type _start, @function
