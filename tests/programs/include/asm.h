// Macros for programs in assembly: exit, and checks that exit with a number of their own.
// A program defines _start and ends with PASS.

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
