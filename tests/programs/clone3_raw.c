// Claim: a thread and a process made by a bare clone3() are followed like any other, and their ends
// are seen.
// build: gcc O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; gcc O2 nopie static
// oracle: closed
// varies: the thread may end before it is waited for
// count: work = 700
#define _GNU_SOURCE
#include <linux/futex.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long total;
static volatile int tid_word = 1;
static char stack[65536] __attribute__((aligned(16)));
__attribute__((noinline, used)) void work(void) { total++; }
__attribute__((used)) void body(void) {
  for (int i = 0; i < 700; i++) work();
}

static long clone_thread(struct clone_args* args) {
  long result;
  __asm__ volatile(
      "syscall\n test %%rax, %%rax\n jnz 1f\n xor %%ebp, %%ebp\n call body\n"
      "mov $60, %%eax\n xor %%edi, %%edi\n syscall\n hlt\n1:\n"
      : "=a"(result)
      : "a"(SYS_clone3), "D"(args), "S"(sizeof *args)
      : "rcx", "r11", "memory");
  return result;
}

int main(void) {
  struct clone_args thread = {
      .flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
               CLONE_CHILD_CLEARTID,
      .child_tid = (uintptr_t)&tid_word,
      .stack = (uintptr_t)stack,
      .stack_size = sizeof stack};
  if (clone_thread(&thread) < 0) return 1;
  while (tid_word != 0) syscall(SYS_futex, &tid_word, FUTEX_WAIT, 1, NULL, NULL, 0);
  int pidfd = -1;
  struct clone_args process = {
      .flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
  long pid = syscall(SYS_clone3, &process, sizeof process);
  if (pid == 0) _exit(5);
  siginfo_t info = {0};
  if (waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED)) return 2;
  printf("%ld %d\n", total, info.si_status);
  return 0;
}
