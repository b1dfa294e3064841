// Claim: a system call that the program's filter traps reaches the handler of SIGSYS as natively:
// the address it is told is the one behind the program's own `syscall`, as is the context's; number
// and arguments are in the registers, and what the handler writes to rax is the call's result. That
// holds for calls that Tally has a hand in, too (mprotect, mmap, execve, arch_prctl), of which
// Tally then believes nothing: memory that was "made" executable stays what it was.  A handler that
// makes the call itself, from where the filter lets it pass, gives its result; one that goes
// elsewhere gets there; a trap inside a handler of a trap is served too.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
// count: call = 2
// count: on_trap = 401
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define PASS 0x7a55  // as sixth argument: the handler's own call
#define ARGUMENT(n) offsetof(struct seccomp_data, args[n])

static struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(5)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PASS, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 5, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getgid, 4, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 3, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_execve, 2, 0),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_arch_prctl, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 77),
};

extern char behind_call[];
static volatile long traps, wrong, nested;
static jmp_buf away;

__attribute__((noinline)) long call(long number, long a, long b, long c, long pass) {
  register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0, r9 __asm__("r9") = pass;
  long result = number;
  __asm__ volatile("syscall"
                   : "+a"(result)
                   : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

// The one call of this program whose address is known.
__attribute__((noinline, noclone)) long trapped_call(long number, long a, long b, long c) {
  register long r9 __asm__("r9") = 0;
  long result = number;
  __asm__ volatile("syscall\n.globl behind_call\nbehind_call:"
                   : "+a"(result)
                   : "D"(a), "S"(b), "d"(c), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}

static void on_trap(int number, siginfo_t* info, void* context) {
  greg_t* regs = ((ucontext_t*)context)->uc_mcontext.gregs;
  traps++;
  if (number != SIGSYS || info->si_code != 1 || info->si_errno != 77) wrong++;
  if ((greg_t)info->si_call_addr != regs[REG_RIP] || (char*)info->si_call_addr != behind_call)
    wrong++;
  if (info->si_syscall != regs[REG_RAX]) wrong++;
  switch (info->si_syscall) {
    case SYS_getppid:
      regs[REG_RAX] = regs[REG_RDI] + regs[REG_RSI] + regs[REG_RDX];
      break;
    case SYS_getgid:  // served by another trap
      nested++;
      regs[REG_RAX] = trapped_call(SYS_getppid, regs[REG_RDI], 1000, 0) + 1;
      break;
    case SYS_mprotect:
      if (regs[REG_RDX] & 1024) siglongjmp(away, 1);
      regs[REG_RAX] = call(SYS_mprotect, regs[REG_RDI], regs[REG_RSI], regs[REG_RDX], PASS);
      break;
    default:
      regs[REG_RAX] = -EXDEV;
  }
}

static void say(const char* what, int right) {
  char line[64];
  const int length = snprintf(line, sizeof line, "%s%s\n", right ? "" : "not ", what);
  if (write(1, line, length) != length) _exit(9);
}

static int in_child(void) {
  return trapped_call(SYS_getppid, 30, 2, 1) == 33 && !wrong ? 33 : 1;
}

int main(void) {
  unsigned char* memory =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(memory, "\xb8\x2a\x00\x00\x00\xc3", 6);  // mov eax, 42; ret
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSYS, &action, NULL);
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 3;
  long sum = 0, emulated = 0;
  for (int i = 0; i < 196; i++) sum += trapped_call(SYS_getppid, i, 1, 2) == i + 3;
  say("emulated", sum == 196);
  for (int i = 0; i < 100; i++) emulated += trapped_call(SYS_getgid, i, 0, 0) == i + 1001;
  say("nested", emulated == 100 && nested == 100);
  const long rw = PROT_READ | PROT_WRITE, rx = PROT_READ | PROT_EXEC;
  say("made executable", trapped_call(SYS_mprotect, (long)memory, 4096, rx) == 0);
  say("executed", ((int (*)(void))memory)() == 42);
  say("made writable", trapped_call(SYS_mprotect, (long)memory, 4096, rw) == 0);
  memory[1] = 43;
  say("written", memory[1] == 43);
  char* none[] = {NULL};
  say("no exec", trapped_call(SYS_execve, (long)"/bin/true", (long)none, (long)none) == -EXDEV);
  say("no arch_prctl", trapped_call(SYS_arch_prctl, 0x1003, (long)&sum, 0) == -EXDEV);
  if (sigsetjmp(away, 1) == 0) {
    trapped_call(SYS_mprotect, (long)memory, 4096, rx | 1024);
    say("not left", 0);
  }
  say("left", 1);
  say("right", wrong == 0);
  return 0;
}
