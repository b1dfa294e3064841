// Claim: xmm, ymm, x87 and mxcsr state survives calls, returns, indirect calls and system calls.
// build: gcc,clang O0,O2 pie,nopie nolibc
// flags: -mavx
// needs: avx
#include "include/nolibc.h"

typedef long V __attribute__((vector_size(32)));
static volatile long count;
NOINLINE void empty(void) { count++; }
static void (*volatile through)(void) = empty;

NOINLINE long ymm_across(long n) {
  long out[4] = {0, 0, 0, 0};
  __asm__ volatile(
      "vmovq %1, %%xmm15\n vpermilpd $0, %%xmm15, %%xmm15\n vinsertf128 $1, %%xmm15, %%ymm15, %%ymm15\n"
      "vaddpd %%ymm15, %%ymm15, %%ymm14\n"
      "sub $136, %%rsp\n"
      "call empty_asm\n"
      "call *%2\n"
      "jmp 1f\n 1:\n"
      "mov $39, %%eax\n syscall\n"
      "add $136, %%rsp\n"
      "vmovdqu %%ymm15, %0\n"
      : "=m"(out)
      : "r"(n), "b"(through)
      : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "xmm14", "xmm15");
  return out[0] == n && out[1] == n && out[2] == n && out[3] == n;
}
__asm__(".text\n.type empty_asm, @function\nempty_asm: ret\n");

NOINLINE long x87_across(void) {
  long double a = 1.25L;
  long result = 0;
  __asm__ volatile(
      "fld1\n fldpi\n fldl2e\n"
      "sub $136, %%rsp\n call empty_asm\n mov $39, %%eax\n syscall\n add $136, %%rsp\n"
      "fistpq %0\n fstp %%st(0)\n fstp %%st(0)\n"
      : "=m"(result)
      :
      : "rax", "rcx", "r11", "memory");
  return result + (long)(a * 4);
}
NOINLINE long rounding(unsigned mode) {
  unsigned saved, wanted;
  __asm__ volatile("stmxcsr %0" : "=m"(saved));
  wanted = (saved & ~0x6000u) | mode << 13;
  __asm__ volatile("ldmxcsr %0" ::"m"(wanted));
  through();
  long sum = 0;
  volatile double values[] = {0.5, 1.5, -2.5, 2.4, -0.6};
  for (int i = 0; i < 5; i++) {
    long v;
    __asm__ volatile("cvtsd2si %1, %0" : "=r"(v) : "m"(values[i]));
    sum = sum * 10 + v;
  }
  __asm__ volatile("ldmxcsr %0" ::"m"(saved));
  return sum;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  for (long i = 1; i < 20; i++) CHECK(ymm_across(i * 0x0101010101010101));
  print_number("x87", x87_across());
  for (unsigned m = 0; m < 4; m++) print_number("rounding", rounding(m));
  return 0;
}
