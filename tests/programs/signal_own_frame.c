// Claim: a program without libc, whose handlers return through code of its own without call frame
// information; it leaves one handler by exit, at depth.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: status=5
#include "include/nolibc.h"

__asm__(".text\nown_restorer: xor %eax, %eax\n mov $15, %al\n syscall\n");
extern char own_restorer[];
struct kernel_action {
  void (*handler)(int, void*, uint64_t*);
  unsigned long flags;
  void* restorer;
  unsigned long mask;
};

static volatile int handled;
NOINLINE void at_end(int n) {
  if (n == 0) finish(5);
  at_end(n - 1);
  BARRIER();
}
static void handler(int number, void* info, uint64_t* context) {
  (void)info;
  handled++;
  if (number == 4) context[5 + 16] += 2;  // over the ud2
  if (number == 12) at_end(2);
}
NOINLINE void strike(int number) {
  long self = syscall3(39, 0, 0, 0);
  syscall3(62, self, number, 0);
  BARRIER();
}
int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  struct kernel_action action = {handler, 0x04000004, own_restorer, 0};
  CHECK(syscall6(13, 10, (long)&action, 0, 8, 0, 0) == 0);
  CHECK(syscall6(13, 12, (long)&action, 0, 8, 0, 0) == 0);
  CHECK(syscall6(13, 4, (long)&action, 0, 8, 0, 0) == 0);
  for (int i = 0; i < 5; i++) strike(10);
  for (int i = 0; i < 3; i++) __asm__ volatile("nop\nud2" ::: "memory");
  print_number("handled", handled);
  strike(12);
  return 0;
}
