// Claim: an exit below procedures without call frame information, with described ones between and
// around them; with a frame pointer and without.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// expect: status=7
// oracle: step
#include <stdio.h>
#include <stdlib.h>

// Calls its argument from a frame of its own, which nothing describes.
__asm__(
    ".text\n"
    "through: .globl through\n"
    "  sub $56, %rsp\n"
    "  call *%rdi\n"
    "  add $56, %rsp\n"
    "  ret\n");
void through(void (*)(void));

static int depth;
static volatile int sink;

__attribute__((noinline)) static void work(void) { sink++; }

__attribute__((noinline)) static void inner(void) {
  through(work);
  if (++depth == 5) {
    puts("ends");
    exit(7);
  }
  through(inner);
  work();
}

int main(void) {
  for (int i = 0; i < 3; i++) through(work);
  char* room = __builtin_alloca((unsigned)(100 + sink));
  room[0] = 1;
  through(inner);
  return room[0];
}
