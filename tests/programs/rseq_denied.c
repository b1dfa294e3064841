// Claim: rseq is answered as by a kernel that has none (addresses of critical sections are never
// those of running code), and sched_getcpu, which glibc builds on it, works all the same.
// build: gcc,clang O2 pie dynamic,static
// ci: gcc O2 pie dynamic
// oracle: closed
// count: ask = 100
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static char area[32] __attribute__((aligned(32)));
__attribute__((noinline)) int ask(void) { return sched_getcpu(); }

int main(void) {
  int cpus = 0;
  for (int i = 0; i < 100; i++) cpus += ask() >= 0;
  // Natively glibc has registered an area of its own, so that this fails there, too.
  long result = syscall(SYS_rseq, area, sizeof area, 0, 0x53053053);
  printf("%d %ld\n", cpus, result);
  return 0;
}
