// Claim: a `syscall` at the end of a procedure goes on in the next one, whether that has been called
// before or is found that way; one that never comes back, in front of the same procedure, does not.
// build: gcc,clang O0,O2 pie,nopie nolibc
// expect: status=3
#include "include/nolibc.h"

// `ask` and `ask_again` go on in what stands behind them; `leave` ends the program.
__asm__(
    ".text\n"
    ".type ask,@function\nask: mov $39, %eax\n syscall\n.size ask, . - ask\n"
    ".type behind,@function\nbehind: xor %eax, %eax\n inc %eax\n ret\n.size behind, . - behind\n"
    ".type ask_again,@function\nask_again: mov $39, %eax\n syscall\n.size ask_again, . - ask_again\n"
    ".type called,@function\ncalled: mov $2, %eax\n ret\n.size called, . - called\n"
    ".type leave_now,@function\nleave_now: mov $231, %eax\n syscall\n.size leave_now, . - leave_now\n"
    ".type last,@function\nlast: mov $3, %eax\n ret\n.size last, . - last\n");
long ask(void), behind(void), ask_again(void), called(void), last(void);
void leave_now(int);

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  long sum = 0;
  for (int i = 0; i < 5; i++) sum += ask();
  for (int i = 0; i < 3; i++) sum += behind() + called();
  for (int i = 0; i < 4; i++) sum += ask_again() + last();
  print_number("sum", sum);
  leave_now(3);
  return 0;
}
