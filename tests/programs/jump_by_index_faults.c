// Claim: what faults on the way to a jump through a table shows the registers that the program has
// there, and is tried again with those that the handler gives; or control goes on elsewhere.
// build: gcc,clang O0 pie,nopie static,dynamic
// ci: gcc O0 pie dynamic; clang O0 nopie static
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

#include "include/jump_by_index.h"

static const char* const nowhere = (const char*)0x123000;
static int faults, wrong;
static unsigned expected;
static int skips;

static void handler(int number, siginfo_t* info, void* context) {
  ucontext_t* u = context;
  greg_t* regs = u->uc_mcontext.gregs;
  const int masked = (char*)regs[REG_RIP] == load_masked_at;
  faults++;
  if (number != SIGSEGV || (!masked && (char*)regs[REG_RIP] != load_at)) wrong++;
  if (info->si_addr != nowhere + 4 * expected) wrong++;
  if (regs[REG_RCX] != (greg_t)nowhere || (unsigned)regs[REG_RSI] != expected) wrong++;
  if (regs[REG_RAX] != (masked ? (greg_t)expected : 0x1111)) wrong++;
  if (!masked && regs[REG_RDX] != (greg_t)expected) wrong++;
  if (skips) {
    regs[REG_RIP] = (greg_t)recovered;
  } else {
    regs[REG_RCX] = (greg_t)ways;
  }
}

int main(void) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
  sigaction(SIGSEGV, &action, NULL);
  long sum = 0;
  for (int round = 0; round < 6; ++round) {
    for (unsigned i = 0; i < 8; ++i) {
      const int bad = round >= 2;
      skips = round == 3 || round == 5;
      expected = i;
      const int by_one = lead(bad ? nowhere : NULL, i);
      const int by_other = lead_masked(bad ? nowhere : NULL, i);
      const int wanted = bad && skips ? 100 : (int)i + 1;
      if (by_one != wanted || by_other != wanted) wrong++;
      sum += by_one + 3 * by_other;
    }
  }
  printf("%d faults, %d wrong, sum %ld\n", faults, wrong, sum);
  return wrong != 0;
}
