// Claim: a child that clone gave a stack of its own, without sharing memory, jumps back to the copy
// of its maker's (as chromium forks): its own frames are left, and the maker's, which it returns
// to, were called before the fork.  A child that stays on its stack has nothing to do with them.
// build: gcc,clang O0,O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: output
// count: in_child = 10
// count: behind = 18
// count: outer = 10
#define _GNU_SOURCE
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int stays, sink;
static char* other_stack;

__attribute__((noinline)) int in_child(void* to) {
  sink++;
  if (stays) return 40;
  longjmp(*(jmp_buf*)to, 1);
}

// The stack of the child lies inside this frame, as chromium's, or elsewhere.
__attribute__((noinline)) int make(jmp_buf* to, int inside) {
  char room[16384] __attribute__((aligned(16)));
  memset(room, 0, sizeof room);
  char* stack = inside ? room : other_stack;
  const int pid = clone(in_child, stack + sizeof room, SIGCHLD, to);
  return pid + room[0];
}

__attribute__((noinline)) int fork_so(int inside) {
  jmp_buf here;
  if (setjmp(here) == 0) return make(&here, inside);
  return 0;
}

__attribute__((noinline)) int behind(int n) {
  return n + 1;
}

__attribute__((noinline)) int outer(int inside) {
  const int pid = fork_so(inside);
  return pid == 0 ? -behind(6) : behind(pid) - 1;
}

int main(void) {
  other_stack = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int jumped = 0, stayed = 0;
  for (int i = 0; i < 10; i++) {
    stays = i % 5 == 4;
    const int pid = outer(i & 1);
    if (pid < 0) exit(-pid);
    int status = 0;
    if (pid == 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) return 2;
    jumped += WEXITSTATUS(status) == 7;
    stayed += WEXITSTATUS(status) == 40;
  }
  printf("%d jumped, %d stayed\n", jumped, stayed);
  return 0;
}
