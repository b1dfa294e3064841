// Claim: every code address a program can observe is its own: return addresses, labels, function
// pointers, frames walked by rbp; found unchanged on the stack and in memory.
// build: gcc,clang O0,O2 pie,nopie nolibc
// flags: -fno-omit-frame-pointer
#include "include/nolibc.h"

extern char etext[] __attribute__((visibility("hidden")));

static int in_text(void* p) { return (char*)p >= __ehdr_start && (char*)p < etext; }

NOINLINE void* caller(void) { return __builtin_return_address(0); }
NOINLINE void* site(void) {
  void* p = caller();
  BARRIER();
  return p;
}
NOINLINE long walk(void) {
  long frames = 0;
  void** frame = __builtin_frame_address(0);
  while (frame && frame[1]) {
    if (!in_text(frame[1])) return -1;
    frames++;
    frame = (void**)frame[0];
  }
  return frames;
}
NOINLINE long deep(long n) {
  long r = n ? deep(n - 1) : walk();
  BARRIER();
  return r;
}
NOINLINE long labels(void) {
  void *a, *b, *from_call;
  __asm__ volatile(
      "lea 1f(%%rip), %0\n sub $128, %%rsp\n call 2f\n 1: add $128, %%rsp\n jmp 3f\n"
      "2: mov (%%rsp), %1\n ret\n 3:\n"
      : "=&r"(a), "=&r"(from_call));
  b = &&here;
here:
  HIDE(b);
  return a == from_call && in_text(b);
}

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  CHECK(in_text(caller()));
  CHECK(in_text((void*)caller));
  void* first = caller();
  void* again = 0;
  for (volatile int i = 0; i < 3; i++) {
    void* now = site();
    CHECK(again == 0 || now == again);
    again = now;
  }
  CHECK(first != again);
  CHECK(labels());
  CHECK(deep(5) >= 7);
  print("passed\n");
  return 0;
}
