// Claim: handlers of synchronous signals that change the context: skip the faulting instruction,
// go on elsewhere, or mend the cause and let it be tried again.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static; clang O2 pie static
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile int seen[65];
static volatile int wrong_place;
static char* page;

extern char load_at[], divide_at[], illegal_at[], trap_behind[], recovered[];

static void check(const ucontext_t* u, const siginfo_t* info, const void* at) {
  if ((char*)u->uc_mcontext.gregs[REG_RIP] != at) wrong_place++;
  if ((info->si_signo == SIGFPE || info->si_signo == SIGILL) && info->si_addr != at) wrong_place++;
}

static void handler(int number, siginfo_t* info, void* context) {
  ucontext_t* u = context;
  greg_t* regs = u->uc_mcontext.gregs;
  seen[number]++;
  switch (number) {
    case SIGSEGV:
      if ((char*)info->si_addr == page) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
      } else {
        check(u, info, load_at);
        regs[REG_RIP] = (greg_t)recovered;
      }
      break;
    case SIGFPE:
      check(u, info, divide_at);
      regs[REG_RIP] += 2;
      regs[REG_RAX] = 77;
      break;
    case SIGILL:
      check(u, info, illegal_at);
      regs[REG_RIP] += 2;
      break;
    case SIGTRAP:
      check(u, info, trap_behind);
      regs[REG_RBX] += 5;
      break;
  }
}

__attribute__((noinline)) static long load(const long* from) {
  long result;
  __asm__ volatile(
      "  xor %%eax, %%eax\n"
      "  inc %%rax\n"
      ".globl load_at, recovered\n"
      "load_at: mov (%1), %0\n"
      "  add $1000, %0\n"
      "  jmp 1f\n"
      "recovered: add $5, %%rax\n"
      "1:\n"
      : "=&a"(result)
      : "r"(from)
      : "cc");
  return result;
}

__attribute__((noinline)) static long divide(long by) {
  long result = 100;
  __asm__ volatile(
      "  xor %%edx, %%edx\n"
      ".globl divide_at\n"
      "divide_at: .byte 0xf7, 0xf1\n"  // div ecx
      "  add $1, %%rax\n"
      : "+a"(result)
      : "c"(by)
      : "rdx", "cc");
  return result;
}

__attribute__((noinline)) static long trap(long x) {
  __asm__ volatile(
      "  add $1, %%rbx\n"
      ".globl illegal_at, trap_behind\n"
      "illegal_at: ud2\n"
      "  add $1, %%rbx\n"
      "  int3\n"
      "trap_behind: add $1, %%rbx\n"
      : "+b"(x)
      :
      : "cc");
  return x;
}

int main(void) {
  page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  int numbers[] = {SIGSEGV, SIGFPE, SIGILL, SIGTRAP};
  for (int i = 0; i < 4; i++) sigaction(numbers[i], &action, NULL);
  long good = 3, sum = 0;
  for (int i = 0; i < 4; i++) {
    sum += load(i % 2 ? &good : (long*)16);
    sum += divide(i % 2);
    sum += trap(i);
  }
  *(volatile char*)page = 1;
  mprotect(page, 4096, PROT_NONE);
  sum += *(volatile char*)page;
  printf("%ld %d %d %d %d %d\n", sum, seen[SIGSEGV], seen[SIGFPE], seen[SIGILL], seen[SIGTRAP],
         wrong_place);
  return wrong_place;
}
