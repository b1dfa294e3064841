// Claim: with alignment checks switched on (the AC flag), calls and returns go where they should, and
// only what is not aligned in the program faults.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O1 nopie static; gcc O0 pie static
// flags: -D_GNU_SOURCE -mno-sse -fno-optimize-sibling-calls
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define AC 0x40000

// From its return on they are on.  `pop_16` calls what pops its arguments.
void set_checks(void);
void clear_checks(void);
int look(const char* place);
long pop_16(void);
__asm__(
    ".text\n"
    "set_checks:\n"
    "  .cfi_startproc\n"
    "  pushf\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  orl $0x40000, (%rsp)\n"
    "  popf\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "clear_checks:\n"
    "  .cfi_startproc\n"
    "  pushf\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  andl $~0x40000, (%rsp)\n"
    "  popf\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  ret\n"
    "  .cfi_endproc\n"
    "look:\n"
    "  .cfi_startproc\n"
    "  mov (%rdi), %eax\n"  // two bytes; it may fault
    "  ret\n"
    "  .cfi_endproc\n"
    "pop_16:\n"
    "  .cfi_startproc\n"
    "  sub $16, %rsp\n"
    "  .cfi_adjust_cfa_offset 16\n"
    "  movq $5, (%rsp)\n"
    "  movq $6, 8(%rsp)\n"
    "  call 1f\n"
    "  .cfi_adjust_cfa_offset -16\n"
    "  ret\n"
    "1:\n"
    "  mov 8(%rsp), %rax\n"
    "  add 16(%rsp), %rax\n"
    "  ret $16\n"
    "  .cfi_endproc\n");

static volatile sig_atomic_t faults, others, wrong;

static void on_fault(int number, siginfo_t* info, void* context) {
  clear_checks();
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  if (number != SIGBUS || info->si_code != BUS_ADRALN) wrong++;
  if (registers[REG_RIP] != (greg_t)look || (registers[REG_EFL] & AC) == 0) wrong++;
  faults++;
  registers[REG_RAX] = 1000;
  registers[REG_RIP] += 2;
}

static void on_other(int number) {
  (void)number;
  others++;
}

__attribute__((noinline)) static int fib(int n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}
__attribute__((noinline)) static int triple(int n) { return 3 * n; }
__attribute__((noinline)) static int next(int n) { return n + 1; }
static int (*volatile functions[])(int) = {fib, triple, next};

static const char text[] __attribute__((aligned(8))) = "abcdefghijkl";

int main(void) {
  struct sigaction action = {0};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, 0);
  signal(SIGUSR1, on_other);
  const long pid = getpid();
  long sum = 0;
  set_checks();
  for (int i = 0; i < 30; i++) {
    sum += functions[i % 3](i % 9);
    sum += fib(5) + pop_16();
  }
  sum += look(text) + look(text + 4);
  sum += look(text + 1);
  sum += look(text + 2);
  clear_checks();
  sum += look(text + 3);
  set_checks();
  long result;  // straight: nobody aligns what the dynamic linker does
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(SYS_kill), "D"(pid), "S"(SIGUSR1)
                   : "rcx", "r11", "memory");
  sum += fib(4);
  clear_checks();
  printf("%ld, %d faults, %d others, %d wrong\n", sum, faults, others, wrong);
  return 0;
}
