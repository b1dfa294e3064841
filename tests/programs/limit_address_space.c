// Claim: a program that limits its address space has what it asked for, and no more, and reads back
// what it has set; so do its child and the program that it becomes.
// build: gcc,clang O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
// oracle: output
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long megabytes_left(void) {
  long n = 0;
  while (n < 2000 &&
         mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)
    n++;
  return n;
}

// Exact numbers depend on what is mapped at the start.
static void say(const char* who) {
  struct rlimit now = {1, 1};
  getrlimit(RLIMIT_AS, &now);
  long left = megabytes_left();
  printf("%s %ld MB %s\n", who, (long)(now.rlim_cur >> 20), left > 350 && left < 400 ? "fit" : "?");
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc > 1) {
    say("executed");
    return 0;
  }
  struct rlimit limit = {400 << 20, 500 << 20}, before, after;
  getrlimit(RLIMIT_AS, &before);
  if (setrlimit(RLIMIT_AS, &limit)) return 1;
  if (prlimit(0, RLIMIT_AS, NULL, &after)) return 2;
  printf("%d %ld %ld\n", before.rlim_cur == RLIM_INFINITY, (long)after.rlim_cur >> 20,
         (long)after.rlim_max >> 20);
  fflush(stdout);
  if (fork() == 0) {
    say("child");
    _exit(0);
  }
  wait(NULL);
  char* arguments[] = {argv[0], (char*)"again", NULL};
  execv("/proc/self/exe", arguments);
  return 3;
}
