// Claim: a filter that allows only what the program itself calls (and not futex, by which Tally
// waits) judges the program alone: allowed calls work, refused ones fail with the filter's error, a
// trapped one reaches its handler with its number, a forked child is under the filter too.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
// count: allowed = 1000
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALLOW(n)                                             \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##n, 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(write),
    ALLOW(getpid),
    ALLOW(exit_group),
    ALLOW(rt_sigreturn),
    ALLOW(fork),
    ALLOW(clone),
    ALLOW(wait4),
    ALLOW(set_robust_list),
    ALLOW(rseq),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getuid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 123),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getgid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP | 45),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
};

static volatile long trapped_number, trapped_data, in_text, total;
static void on_trap(int number, siginfo_t* info, void* context) {
  (void)number, (void)context;
  trapped_number = info->si_syscall;
  trapped_data = info->si_errno;
}
__attribute__((noinline)) void allowed(void) { total += syscall(SYS_getpid) > 0; }
// Not yet called when the filter comes: it is translated, and the monitor asked, behind it.
__attribute__((noinline)) int in_child(int n) {
  if (syscall(SYS_getuid) != -1 || errno != 123) return 1;
  return n + 7;
}

static void say(const char* text) { (void)!write(1, text, strlen(text)); }

int main(void) {
  struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
  sigaction(SIGSYS, &action, NULL);
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return 3;
  for (int i = 0; i < 1000; i++) allowed();
  say(total == 1000 ? "allowed\n" : "not allowed\n");
  long result = syscall(SYS_getuid);
  say(result == -1 && errno == 123 ? "refused\n" : "not refused\n");
  syscall(SYS_getgid);
  say(trapped_number == SYS_getgid && trapped_data == 45 ? "trapped\n" : "not trapped\n");
  pid_t child = fork();
  if (child == 0) _exit(in_child(child));
  int status = 0;
  syscall(SYS_wait4, child, &status, 0, 0);
  say(WIFEXITED(status) && WEXITSTATUS(status) == 7 ? "child\n" : "no child\n");
  return 0;
}
