// Claim: children that the kernel is told not to show a tracer are followed all the same, with
// memory of their own and with their parent's.
// build: gcc,clang O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// count: work = 2000
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long total;
static char stack[65536] __attribute__((aligned(16)));
__attribute__((noinline)) static void work(int i) { total += i; }

static int body(void* end) {
  for (int i = 0; i < 1000; i++) work(i);
  return *(const int*)end;
}

static int status_of(long pid) {
  int status = 0;
  if (pid <= 0 || waitpid((pid_t)pid, &status, __WALL) != pid || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

int main(void) {
  int end = 7;
  const int kind = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_UNTRACED;
  const int shared = status_of(clone(body, stack + sizeof stack, kind, &end));
  const long seen = total;
  const long pid = syscall(SYS_clone, CLONE_UNTRACED | 17, 0, 0, 0, 0);
  if (pid == 0) {
    end = 9;
    _exit(body(&end));
  }
  const int own = status_of(pid);
  printf("%d %ld %d %ld\n", shared, seen, own, total);
  return 0;
}
