// Claim: code that comes after a filter was installed, and far from all code there was, runs and is
// counted, though the filter forbids futex (by which Tally waits) and knows nothing of the code
// cache that is mapped for the new code.  System calls of that code are judged as all others.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
// count: called_back = 150
#define _GNU_SOURCE
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 55),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};

// long f(long number, long (*g)(long)): g(syscall(number))
static const unsigned char text[] = {
    0x48, 0x89, 0xf8,              // mov rax, rdi
    0x0f, 0x05,                    // syscall
    0x48, 0x89, 0xc7,              // mov rdi, rax
    0x48, 0x83, 0xec, 0x08,        // sub rsp, 8
    0xff, 0xd6,                    // call rsi
    0x48, 0x83, 0xc4, 0x08, 0xc3,  // add rsp, 8; ret
};

__attribute__((noinline)) long called_back(long n) {
  return n + 1;
}

static int ask(char* at) {
  char* memory = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory != at) return 0;  // the kernel gives the place that is asked for if it is free
  memcpy(memory, text, sizeof text);
  if (mprotect(memory, 4096, PROT_READ | PROT_EXEC)) return 0;
  long (*far)(long, long (*)(long)) = (long (*)(long, long (*)(long)))memory;
  int right = 0;
  for (int i = 0; i < 25; i++) right += far(SYS_getpid, called_back) == getpid() + 1;
  for (int i = 0; i < 25; i++) right += far(SYS_getppid, called_back) == -54;
  return right;
}

int main(void) {
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 2;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 3;
  printf("far %d\n", ask((char*)0x213400000000));
  printf("farther %d\n", ask((char*)0x323410000000));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) _exit(ask((char*)0x433420000000));
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  return 0;
}
