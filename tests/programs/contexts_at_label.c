// Claim: stacks that are switched by undescribed code which goes on at a label of its own, behind no
// call, are not taken for new ones, and that they cannot be followed is named.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// expect: status=5
// oracle: output
// inexact: stacks
// unbalanced: who waits on a stack seems to have gone on, and has not
#include <stdio.h>
#include <unistd.h>

struct context {
  void* stack;
  void* at;
};
void switch_to(struct context* from, struct context* to);
extern char go_on[];
__asm__(
    ".text\n"
    "switch_to:\n"
    "push %rbx\n"
    "push %rbp\n"
    "push %r12\n"
    "push %r13\n"
    "push %r14\n"
    "push %r15\n"
    "mov %rsp, (%rdi)\n"
    "lea go_on(%rip), %rax\n"
    "mov %rax, 8(%rdi)\n"
    "mov (%rsi), %rsp\n"
    "jmp *8(%rsi)\n"
    "go_on: pop %r15\n"
    "pop %r14\n"
    "pop %r13\n"
    "pop %r12\n"
    "pop %rbp\n"
    "pop %rbx\n"
    "ret\n");

enum { GUESTS = 2, STACK_WORDS = 8192, SAVED = 6 };
static struct context host, guests[GUESTS];
static volatile long turns;

__attribute__((noinline, used)) void turn(void) {
  turns++;
}

__attribute__((noinline)) static void yield(int id) {
  turn();
  switch_to(&guests[id], &guests[1 - id]);
  turn();
}

static void first(void) {
  for (;;) yield(0);
}

static void second(void) {
  for (int i = 0; i < 30; i++) yield(1);
  turn();
  printf("%ld\n", turns);
  fflush(stdout);
  _exit(5);
}

int main(void) {
  static void* stacks[GUESTS][STACK_WORDS] __attribute__((aligned(16)));
  void (*const bodies[GUESTS])(void) = {first, second};
  for (int i = 0; i < GUESTS; i++) {
    // As switch_to leaves a stack: saved registers, and where it returns to.
    void** top = stacks[i] + STACK_WORDS - SAVED - 2;
    top[SAVED] = (void*)bodies[i];
    guests[i] = (struct context){top, go_on};
  }
  switch_to(&host, &guests[0]);
  return 1;
}
