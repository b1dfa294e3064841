// Claim: stacks switched by hand-written code, with and without call frame information, by returns
// and by jumps: coroutines that end and that are left are exact.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: step
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// switch_X(void **save, void *to): saves the stack pointer, goes on where `to` was saved.
#define SAVE "push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n mov %rsp, (%rdi)\n"
#define LOAD "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n"
__asm__(
    ".text\n"
    ".type switch_return, @function\n"
    "switch_return:\n" SAVE "mov %rsi, %rsp\n" LOAD "ret\n"
    ".size switch_return, .-switch_return\n"
    ".type switch_jump, @function\n"
    "switch_jump:\n" SAVE "mov %rsi, %rsp\n" LOAD "pop %r8\n jmp *%r8\n"
    ".size switch_jump, .-switch_jump\n"
    ".type switch_exchange, @function\n"
    "switch_exchange:\n" SAVE "xchg %rsi, %rsp\n" LOAD "ret\n"
    ".size switch_exchange, .-switch_exchange\n"
    ".type switch_described, @function\n"
    "switch_described:\n .cfi_startproc\n"
    "push %rbp\n .cfi_adjust_cfa_offset 8\n push %rbx\n .cfi_adjust_cfa_offset 8\n"
    "push %r12\n .cfi_adjust_cfa_offset 8\n push %r13\n .cfi_adjust_cfa_offset 8\n"
    "push %r14\n .cfi_adjust_cfa_offset 8\n push %r15\n .cfi_adjust_cfa_offset 8\n"
    "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
    "pop %r15\n .cfi_adjust_cfa_offset -8\n pop %r14\n .cfi_adjust_cfa_offset -8\n"
    "pop %r13\n .cfi_adjust_cfa_offset -8\n pop %r12\n .cfi_adjust_cfa_offset -8\n"
    "pop %rbx\n .cfi_adjust_cfa_offset -8\n pop %rbp\n .cfi_adjust_cfa_offset -8\n"
    "ret\n .cfi_endproc\n"
    ".size switch_described, .-switch_described\n"
    ".type bottom, @function\n"
    "bottom: ud2\n"
    ".size bottom, .-bottom\n");
typedef void Switch(void **save, void *to);
extern Switch switch_return, switch_jump, switch_exchange, switch_described;
void bottom(void);

enum { kBytes = 32768 };
static void *host, *guest;
static volatile int turns;
static Switch *volatile change;

__attribute__((noinline)) static int rest(int n) {
  if (n > 0) return rest(n - 1) + 1;
  change(&guest, host);
  return 1;
}

static void body(void) {
  for (int i = 0; i < 3; i++) turns += rest(i);
  change(&guest, host);  // for good
  abort();
}

__attribute__((noinline)) static void run(Switch *how, char *stack, int rounds) {
  change = how;
  void **top = (void **)((uintptr_t)(stack + kBytes) & -16);
  *--top = 0;
  *--top = (void *)bottom;
  *--top = (void *)body;
  for (int i = 0; i < 6; i++) *--top = 0;
  guest = top;
  for (int i = 0; i < rounds; i++) how(&host, guest);
}

int main(void) {
  Switch *const all[] = {switch_return, switch_jump, switch_exchange, switch_described};
  for (int rounds = 1; rounds < 5; rounds++) {
    for (int i = 0; i < 4; i++) {
      char *stack = malloc(kBytes);
      run(all[i], stack, rounds);
      if (rounds % 2) free(stack);
    }
  }
  printf("%d\n", turns);
  return 0;
}
