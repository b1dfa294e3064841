// The least that a C program needs to run without libc, so that the single-step oracle has only a
// few thousand instructions to step: entry, exit, printing, self-relocation when it is PIE.
//
// A program defines main(argc, argv, envp) and uses CHECK(condition), which exits with the line
// number (folded into 1..119) as status.
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone, noipa))
#endif

// Keeps the compiler from knowing a value.
#define HIDE(x) __asm__ volatile("" : "+r"(x))
#define BARRIER() __asm__ volatile("" ::: "memory")
#define CHECK(condition)                                  \
  do {                                                    \
    if (!(condition)) finish((__LINE__ % 119) + 1);       \
  } while (0)

static inline long syscall6(long n, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
static inline long syscall3(long n, long a, long b, long c) {
  return syscall6(n, a, b, c, 0, 0, 0);
}

__attribute__((noreturn)) static inline void finish(int status) {
  for (;;) syscall3(231, status, 0, 0);
}

__attribute__((unused)) static NOINLINE void print(const char* s) {
  size_t n = 0;
  while (s[n]) n++;
  syscall3(1, 1, (long)s, (long)n);
}

__attribute__((unused)) static NOINLINE void print_number(const char* label, long value) {
  char text[32];
  int at = 31;
  unsigned long v = value < 0 ? 0ul - (unsigned long)value : (unsigned long)value;
  text[at--] = 0;
  text[at--] = '\n';
  do {
    text[at--] = (char)('0' + v % 10);
    v /= 10;
  } while (v);
  if (value < 0) text[at--] = '-';
  print(label);
  print(" ");
  print(text + at + 1);
}

#ifdef __cplusplus
extern "C" {
#endif
int main(int argc, char** argv, char** envp);
extern char __ehdr_start[] __attribute__((visibility("hidden")));
#ifdef __PIE__
extern Elf64_Dyn _DYNAMIC[] __attribute__((visibility("hidden")));
#endif

// Compilers call these for copies and initialisations of their own accord.
__attribute__((used)) void* memcpy(void* to, const void* from, size_t n) {
  for (size_t i = 0; i < n; i++) {
    ((char*)to)[i] = ((const char*)from)[i];
    BARRIER();
  }
  return to;
}
__attribute__((used)) void* memset(void* to, int value, size_t n) {
  for (size_t i = 0; i < n; i++) {
    ((char*)to)[i] = (char)value;
    BARRIER();
  }
  return to;
}

__attribute__((used, noreturn)) static void nolibc_start(long* sp) {
#ifdef __PIE__
  char* base = __ehdr_start;
  HIDE(base);  // it is no array of known size
  Elf64_Rela* rela = NULL;
  size_t size = 0;
  for (Elf64_Dyn* d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
    if (d->d_tag == DT_RELA) rela = (Elf64_Rela*)(base + d->d_un.d_ptr);
    if (d->d_tag == DT_RELASZ) size = d->d_un.d_val;
  }
  for (size_t i = 0; i < size / sizeof *rela; i++)
    if (ELF64_R_TYPE(rela[i].r_info) == R_X86_64_RELATIVE)
      *(char**)(base + rela[i].r_offset) = base + rela[i].r_addend;
#endif
  int argc = (int)sp[0];
  char** argv = (char**)(sp + 1);
  finish(main(argc, argv, argv + argc + 1));
}
#ifdef __cplusplus
}
#endif

__asm__(
    ".pushsection .text\n"
    ".globl _start\n"
    ".type _start, @function\n"
    "_start:\n"
    "  xor %ebp, %ebp\n"
    "  mov %rsp, %rdi\n"
    "  and $-16, %rsp\n"
    "  call nolibc_start\n"
    "  hlt\n"
    ".size _start, .-_start\n"
    ".popsection\n");
