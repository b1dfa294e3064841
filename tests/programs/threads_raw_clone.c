// Claim: one more thread, made by a bare clone() with its own stack, that ends by itself while the
// main one waits in futex().
// build: gcc,clang O0,O2 pie,nopie nolibc
// count: work = 250
#include "include/nolibc.h"

static volatile int tid_word = 1;
static char stack[16384] __attribute__((aligned(16)));
static volatile long total;

__attribute__((used)) NOINLINE void work(long n) { total += n; }
__attribute__((used)) void thread_body(void) {
  for (long i = 0; i < 250; i++) work(i);
}
// CLONE_VM|FS|FILES|SIGHAND|THREAD|SYSVSEM|CHILD_CLEARTID
NOINLINE long start(void* top, volatile int* tid) {
  long result;
  register long r10 __asm__("r10") = (long)tid;
  __asm__ volatile(
      "mov $56, %%eax\n mov $0x250f00, %%edi\n xor %%edx, %%edx\n xor %%r8d, %%r8d\n"
      "syscall\n test %%rax, %%rax\n jnz 1f\n"
      "xor %%ebp, %%ebp\n call thread_body\n mov $60, %%eax\n xor %%edi, %%edi\n syscall\n hlt\n"
      "1:\n"
      : "=&a"(result)
      : "S"(top), "r"(r10)
      : "rcx", "r11", "rdi", "rdx", "r8", "memory");
  return result;
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  CHECK(start(stack + sizeof stack, &tid_word) > 0);
  // The kernel clears the word and wakes; no loop, so that counts do not depend on time.
  syscall6(202, (long)&tid_word, 0, 1, 0, 0, 0);
  CHECK(tid_word == 0);
  print_number("total", total);
  return 0;
}
