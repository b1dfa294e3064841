// Claim: a handler that interrupts the way to a jump through a table, behind what bounds the index,
// and makes the index another one, sends the program where the table says, however large it is.
// build: gcc,clang O0 pie,nopie static,dynamic
// ci: gcc O0 pie dynamic; clang O0 nopie static
// oracle: output
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <ucontext.h>

// A number for each index below 256, and another one for those above.
__asm__(
    ".section .rodata\n"
    ".p2align 2\n"
    "ways:\n"
    ".rept 64\n .long w0-ways, w1-ways, w2-ways, w3-ways\n .endr\n"
    ".rept 256\n .long w4-ways\n .endr\n"
    ".text\n"
    ".globl lead, bounded_at, loads_at\n"
    ".type lead, @function\n"
    "lead:\n"
    "  lea ways(%rip), %rcx\n"
    "  movzbl %dil, %edx\n"
    "bounded_at:\n"
    ".rept 6\n  add $1, %r8\n .endr\n"
    "loads_at: movslq (%rcx, %rdx, 4), %rax\n"
    "  add %rcx, %rax\n"
    "  jmp *%rax\n"
    "w0: mov $1, %eax\n ret\n"
    "w1: mov $2, %eax\n ret\n"
    "w2: mov $3, %eax\n ret\n"
    "w3: mov $4, %eax\n ret\n"
    "w4: mov $5, %eax\n ret\n"
    ".size lead, . - lead\n");

extern int lead(unsigned index);
extern char bounded_at[], loads_at[];

enum { WANTED = 30, TICKS_MAX = 20000 };  // on the way; in all
static volatile unsigned long ticks, there;

static void handler(int number, siginfo_t* info, void* context) {
  ucontext_t* u = context;
  const char* at = (const char*)u->uc_mcontext.gregs[REG_RIP];
  (void)number, (void)info;
  ticks++;
  if (at < bounded_at || at > loads_at) return;
  there++;
  u->uc_mcontext.gregs[REG_RDX] = 256 + there;
}

int main(void) {
  const struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
  unsigned long wrong = 0;
  while (there < WANTED && ticks < TICKS_MAX) {
    for (unsigned i = 0; i < 1000; ++i) {
      const unsigned long before = there;
      const int way = lead(i & 3);
      const int changed = there != before;
      if (way != (changed ? 5 : (int)(i & 3) + 1)) wrong++;
    }
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%s, %lu wrong\n", there >= WANTED ? "interrupted there" : "never there", wrong);
  return wrong != 0 || there < WANTED;
}
