// Claim: a return whose stack cannot be read faults in front of it.  The handler mends the stack
// pointer and lets it be tried again, or goes on behind the call; the procedures that return set no
// flag, and are counted once each time.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

// Addresses of local labels: a symbol there would be another procedure's beginning.
extern char *const return_at[2], *const back[2];

enum { kStack = 1 << 18 };  // bytes; nobody may read what is above it

static volatile int faults, wrong, recovers, pops;

static void handler(int number, siginfo_t* info, void* context) {
  greg_t* regs = ((ucontext_t*)context)->uc_mcontext.gregs;
  (void)number;
  faults++;
  if ((char*)regs[REG_RIP] != return_at[pops] || (greg_t)info->si_addr != regs[REG_RSP]) wrong++;
  if (regs[REG_RCX] != 99 || regs[REG_RSP] != regs[REG_RAX] + kStack) wrong++;
  regs[REG_RSP] = regs[REG_RAX];
  if (recovers) {
    regs[REG_RIP] = (greg_t)back[pops];
    regs[REG_RSP] += 8 + 8 * pops;
  }
}

// Return from above the stack if `distance` is its size, with nothing that changes a flag; the
// second takes an argument with it.
#define RETURNS(name, label, ret)    \
  ".type " name ", @function\n" name \
  ":\n"                              \
  "  .cfi_startproc\n"               \
  "  mov %rsp, %rax\n"               \
  "  .cfi_def_cfa_register rax\n"    \
  "  lea (%rsp,%rdi), %rsp\n" label  \
  ":\n"                              \
  "  " ret                           \
  "\n"                               \
  "  .cfi_endproc\n"                 \
  ".size " name ", .-" name "\n"

__asm__(RETURNS("returns", ".Lreturn_at", "ret") RETURNS("returns_more", ".Lmore_at", "ret $8")
        ".pushsection .data.rel.ro, \"aw\"\n"
        ".balign 8\n"
        "return_at: .quad .Lreturn_at, .Lmore_at\n"
        "back: .quad .Lback, .Lback_more\n"
        ".popsection\n");

// The flags behind the call are those from before.
#define VISIT(name, argument, returns, label, behind)                                 \
  __attribute__((noinline)) static long name(long distance) {                         \
    long carry = 0;                                                                   \
    __asm__ volatile(                                                                 \
        "  mov $99, %%ecx\n"                                                          \
        "  stc\n" argument "  call " returns "\n" label ":\n" behind "  adc $0, %1\n" \
        : "+D"(distance), "+r"(carry)                                                 \
        :                                                                             \
        : "rax", "rcx", "cc", "memory");                                              \
    return carry;                                                                     \
  }

VISIT(visit, "", "returns", ".Lback", "")
VISIT(visit_more, "  push %%rcx\n  .cfi_adjust_cfa_offset 8\n", "returns_more", ".Lback_more",
      "  .cfi_adjust_cfa_offset -8\n")

static void* run(void* sum) {
  static char handler_stack[1 << 16];
  const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
  sigaltstack(&stack, NULL);
  for (int i = 0; i < 120; i++) {
    recovers = i % 3 == 1;
    pops = i / 3 % 2;
    const long distance = i % 3 == 2 ? 0 : kStack;
    *(long*)sum += pops ? visit_more(distance) : visit(distance);
  }
  return sum;
}

int main(void) {
  char* memory = mmap(NULL, 2 * kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(memory, kStack, PROT_READ | PROT_WRITE);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, NULL);
  long sum = 0;
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, memory, kStack);
  pthread_create(&thread, &attributes, run, &sum);
  pthread_join(thread, NULL);
  printf("%ld %d %d\n", sum, faults, wrong);
  return wrong;
}
