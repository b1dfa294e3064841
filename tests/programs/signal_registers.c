// Claim: a timer strikes at 1 kHz between calls, returns, indirect branches and system calls; each
// time the handler sees the program's own addresses and registers, and afterwards registers, flags
// and vector registers are what they were.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O2 nopie static
// oracle: closed
// varies: how often the timer strikes
// count: area_call = 2000000
// count: leaf = 4000000
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>

extern char area_begin[], area_gap[], area_end[], leaf[], leaf_end[];
static volatile unsigned long ticks, in_area, wrong;

#define PATTERN(n) (0x1111111111111111ull * (n))

static void handler(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  const greg_t* regs = ((ucontext_t*)context)->uc_mcontext.gregs;
  char* pc = (char*)regs[REG_RIP];
  ticks++;
  if (!((pc >= area_begin && pc < area_end) || (pc >= leaf && pc < leaf_end))) return;
  if (pc >= area_gap && pc < area_end) return;  // rcx is borrowed there
  in_area++;
  static const int numbers[] = {REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI, REG_RBP,
                                REG_R8,  REG_R9,  REG_R10, REG_R12, REG_R13, REG_R14};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    if ((uint64_t)regs[numbers[i]] != PATTERN(i + 1)) wrong = i + 1;
  }
  if (!(regs[REG_EFL] & 1)) wrong = 100;  // carry is set throughout
  __asm__ volatile("pxor %%xmm5, %%xmm5\n pxor %%xmm0, %%xmm0" ::: "xmm5", "xmm0");
}

__asm__(
    ".text\n"
    ".globl leaf, leaf_end, area_begin, area_gap, area_end, area_call, run_area\n"
    "leaf: .cfi_startproc\n ret\n"
    "leaf_end: .cfi_endproc\n"
    "run_area: .cfi_startproc\n"
    "  push %rbx\n push %rbp\n push %r12\n push %r13\n push %r14\n push %r15\n"
    "  mov %rdi, %r15\n"
    "  lea leaf(%rip), %rax\n push %rax\n"
    "  movabs $0x1111111111111111, %rbx\n"
    "  lea (%rbx,%rbx), %rcx\n"
    "  lea (%rcx,%rbx), %rdx\n"
    "  lea (%rdx,%rbx), %rsi\n"
    "  lea (%rsi,%rbx), %rdi\n"
    "  lea (%rdi,%rbx), %rbp\n"
    "  lea (%rbp,%rbx), %r8\n"
    "  lea (%r8,%rbx), %r9\n"
    "  lea (%r9,%rbx), %r10\n"
    "  lea (%r10,%rbx), %r12\n"
    "  lea (%r12,%rbx), %r13\n"
    "  lea (%r13,%rbx), %r14\n"
    "  movq %rdx, %xmm5\n"
    "  stc\n"
    "area_begin:\n"
    "1:\n"
    "area_call: call leaf\n"
    "  call *(%rsp)\n"
    "  lea 2f(%rip), %rax\n"
    "  jmp *%rax\n"
    "  nop\n"
    "2: jnc 9f\n"
    "  lea -1(%r15), %r15\n"
    "  mov %r15, %rax\n"
    "  bswap %rax\n"
    "  xchg %rax, %rcx\n"  // jrcxz asks rcx
    "area_gap: jrcxz 3f\n"
    "  xchg %rax, %rcx\n"
    "area_end: jmp 1b\n"
    "3: xchg %rax, %rcx\n"
    "  jnc 9f\n"
    "  movq %xmm5, %rax\n cmp %rax, %rdx\n jne 9f\n"
    "  mov %r14, %rax\n sub %r13, %rax\n sub %rbx, %rax\n jne 9f\n"
    "  mov %r12, %rax\n sub %r10, %rax\n sub %rbx, %rax\n jne 9f\n"
    "  mov %r9, %rax\n sub %r8, %rax\n sub %rbx, %rax\n jne 9f\n"
    "  mov %rcx, %rax\n sub %rbx, %rax\n sub %rbx, %rax\n jne 9f\n"
    "  xor %eax, %eax\n jmp 8f\n"
    "9: mov $1, %eax\n"
    "8: lea 8(%rsp), %rsp\n"
    "  pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbp\n pop %rbx\n"
    "  ret\n"
    "  .cfi_endproc\n");
extern long run_area(long times);

int main(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  long failed = run_area(2000000);
  memset(&timer, 0, sizeof timer);
  setitimer(ITIMER_REAL, &timer, NULL);
  printf("%ld %lu\n", failed, wrong);
  return failed != 0 || wrong != 0;
}
