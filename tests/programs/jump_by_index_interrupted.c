// Claim: who is interrupted on the way to a jump through a table shows the registers that the
// program has there, whichever instruction it is.
// build: gcc,clang O0 pie,nopie static,dynamic
// ci: gcc O0 pie dynamic; clang O0 nopie static
// oracle: output
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <ucontext.h>

#include "include/jump_by_index.h"

enum { WANTED = 50, TICKS_MAX = 4000 };  // on the way to the jump; in all
static volatile unsigned long ticks, there, wrong;

static void handler(int number, siginfo_t* info, void* context) {
  const ucontext_t* u = context;
  const greg_t* regs = u->uc_mcontext.gregs;
  const char* at = (const char*)regs[REG_RIP];
  const greg_t index = (unsigned)regs[REG_RSI];
  (void)number, (void)info;
  ticks++;
  if (at < copy_at || at > jump_masked_at) return;
  there++;
  greg_t rax = 0x2222;
  if (at == load_masked_at) rax = index;
  if (at == add_masked_at) rax = ways[index];
  if (at == jump_masked_at) rax = (greg_t)ways + ways[index];
  if (regs[REG_RAX] != rax || regs[REG_RCX] != (greg_t)ways) wrong++;
}

int main(void) {
  const struct itimerval every = {{0, 3000}, {0, 3000}}, never = {{0, 0}, {0, 0}};
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
  unsigned long sum = 0;
  while (there < WANTED && ticks < TICKS_MAX) {
    for (unsigned i = 0; i < 1000; ++i) {
      // The load takes long then, so that most signals find the program at it.
      __builtin_ia32_clflush(ways);
      sum += (unsigned long)lead_masked(NULL, i & 7);
    }
  }
  setitimer(ITIMER_REAL, &never, NULL);
  printf("%s, %lu wrong\n", sum > 0 && there >= WANTED ? "interrupted there" : "never there",
         wrong);
  return wrong != 0 || there < WANTED;
}
