// Claim: a program may lock all its memory, what it has and what it will have, which is some
// megabytes and not what Tally has reserved; what the kernel refuses it refuses, the register that
// said what to lock keeps it, and calls and returns go on when code is translated again.
// build: gcc O0 pie,nopie dynamic
// ci: gcc O0 pie dynamic
// oracle: output
// count: recursion = 242785
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, noclone)) static int recursion(int n) {
  return n < 2 ? n : recursion(n - 1) + recursion(n - 2);
}

static long lock(long flags, long* after) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result), "=D"(*after)
                   : "a"(SYS_mlockall), "D"(flags)
                   : "rcx", "r11", "memory");
  return result;
}

static long status_kb(const char* what) {
  char line[256];
  long kb = -1;
  FILE* file = fopen("/proc/self/status", "r");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    if (strncmp(line, what, strlen(what)) == 0) sscanf(line + strlen(what), "%ld", &kb);
  }
  if (file != NULL) fclose(file);
  return kb;
}

int main(void) {
  long after = 0;
  const long refused[] = {0, 4, 8, 9};
  for (int i = 0; i < 4; ++i) printf("%ld: %ld\n", refused[i], lock(refused[i], &after));
  // An ordinary user may not lock so much.
  if (geteuid() == 0) {
    if (lock(MCL_CURRENT | MCL_FUTURE, &after) != 0) return 1;
    if (after != (MCL_CURRENT | MCL_FUTURE)) return 2;
    const long kb = status_kb("VmRSS:");
    if (kb <= 0 || kb > 400000) return 3;
    char* later = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (later == MAP_FAILED) return 4;
    memset(later, 1, 1 << 20);
    if (munlockall() != 0) return 5;
    if (lock(MCL_CURRENT, &after) != 0 || after != MCL_CURRENT) return 6;
  }
  printf("%d\n", recursion(25));
  return 0;
}
