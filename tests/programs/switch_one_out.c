// Claim: hand-written code that goes back, by a return, to the place of the same call one activation
// farther out leaves the activation between for good.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// count: visit = 303
// count: save_or_go = 303
// count: came_back = 45
// count: went_on = 213
#include <stdio.h>

// Saves where it is, as setjmp does, and goes on where `to` was saved, or here.
struct place {
  void *rsp, *rip, *kept[6];
};
int save_or_go(struct place *here, const struct place *to);
__asm__(
    ".text\n"
    ".type save_or_go, @function\n"
    "save_or_go:\n"
    "lea 8(%rsp), %rax\n mov %rax, (%rdi)\n mov (%rsp), %rax\n mov %rax, 8(%rdi)\n"
    "mov %rbx, 16(%rdi)\n mov %rbp, 24(%rdi)\n mov %r12, 32(%rdi)\n mov %r13, 40(%rdi)\n"
    "mov %r14, 48(%rdi)\n mov %r15, 56(%rdi)\n"
    "xor %eax, %eax\n test %rsi, %rsi\n jz 1f\n"
    "mov $1, %eax\n mov 16(%rsi), %rbx\n mov 24(%rsi), %rbp\n mov 32(%rsi), %r12\n"
    "mov 40(%rsi), %r13\n mov 48(%rsi), %r14\n mov 56(%rsi), %r15\n"
    "mov (%rsi), %rsp\n push 8(%rsi)\n ret\n"
    "1: ret\n"
    ".size save_or_go, .-save_or_go\n");

enum { kDeep = 6 };
static struct place saved[kDeep + 1];
static volatile int backs, ons;
__attribute__((noinline)) static void came_back(void) { backs++; }
__attribute__((noinline)) static void went_on(void) { ons++; }

__attribute__((noinline)) static int visit(int depth, int leave_at) {
  const struct place *to = depth == leave_at && depth > 0 ? &saved[depth - 1] : 0;
  if (save_or_go(&saved[depth], to) != 0) {
    came_back();
    return 100;
  }
  const int inner = depth < kDeep ? visit(depth + 1, leave_at) : 1;
  went_on();
  return inner + 1;
}

int main(void) {
  int sum = 0;
  for (int i = 0; i < 60; i++) sum += visit(0, i % (kDeep + 2));
  printf("%d %d %d\n", sum, backs, ons);
  return 0;
}
