// Claim: stacks that are switched by code which nothing describes, as Boost's contexts are (PHP's
// fibers, Folly's): each begins at a place that no call comes back to, and some never end.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// expect: status=5
// oracle: closed
// count: turn = 363
#include <stdio.h>
#include <stdlib.h>

// Puts six registers and what it returns to on the stack; goes on there with rdi: the stack that
// was left, rsi: what is handed over.
struct transfer {
  void* from;
  void* data;
};
struct transfer jump_context(void* to, void* data);
void* make_context(void* top, void (*first)(struct transfer));
__asm__(
    ".text\n"
    "jump_context:\n"
    "lea -0x38(%rsp), %rsp\n"
    "mov %r12, (%rsp)\n"
    "mov %r13, 0x8(%rsp)\n"
    "mov %r14, 0x10(%rsp)\n"
    "mov %r15, 0x18(%rsp)\n"
    "mov %rbx, 0x20(%rsp)\n"
    "mov %rbp, 0x28(%rsp)\n"
    "mov %rsp, %rax\n"
    "mov %rdi, %rsp\n"
    "mov 0x38(%rsp), %r8\n"
    "mov (%rsp), %r12\n"
    "mov 0x8(%rsp), %r13\n"
    "mov 0x10(%rsp), %r14\n"
    "mov 0x18(%rsp), %r15\n"
    "mov 0x20(%rsp), %rbx\n"
    "mov 0x28(%rsp), %rbp\n"
    "lea 0x40(%rsp), %rsp\n"
    "mov %rsi, %rdx\n"
    "mov %rax, %rdi\n"
    "jmp *%r8\n"
    "make_context:\n"
    "mov %rdi, %rax\n"
    "and $-16, %rax\n"
    "lea -0x40(%rax), %rax\n"
    "mov %rsi, 0x20(%rax)\n"
    "lea 1f(%rip), %rcx\n"
    "mov %rcx, 0x38(%rax)\n"
    "lea 2f(%rip), %rcx\n"
    "mov %rcx, 0x28(%rax)\n"
    "ret\n"
    "1: push %rbp\n"
    "mov %rdx, %rsi\n"
    "jmp *%rbx\n"
    "2: xor %edi, %edi\n"
    "call _exit\n"
    "hlt\n");

enum { COROUTINES = 3, STACK_BYTES = 65536 };
static volatile long turns;

__attribute__((noinline, used)) void turn(void) {
  turns++;
}

__attribute__((noinline)) static long deeper(int n) {
  turn();
  return n == 0 ? 1 : deeper(n - 1) + 1;
}

__attribute__((noinline)) static struct transfer yield(void* to, long value) {
  return jump_context(to, (void*)(deeper(2) + value));
}

static void body(struct transfer t) {
  for (long i = 0;; i++) t = yield(t.from, i + (long)t.data);
}

static void last(struct transfer t) {
  t = yield(t.from, 1);
  printf("%ld\n", turns);
  exit(5);
}

int main(void) {
  static char stacks[COROUTINES + 1][STACK_BYTES];
  void* others[COROUTINES + 1];
  long sum = 0;
  for (int i = 0; i <= COROUTINES; i++) {
    others[i] = make_context(stacks[i] + STACK_BYTES, i < COROUTINES ? body : last);
  }
  for (int round = 0; round < 40; round++) {
    for (int i = 0; i < COROUTINES; i++) {
      const struct transfer t = jump_context(others[i], (void*)(long)i);
      others[i] = t.from;
      sum += (long)t.data;
    }
  }
  printf("%ld\n", sum);
  others[COROUTINES] = jump_context(others[COROUTINES], NULL).from;
  jump_context(others[COROUTINES], NULL);
  return 1;
}
