// Claim: a program becomes itself, three times over, from inside a call; each is a run of its own.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// oracle: closed
// expect: status=5
// count: work = 60
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile long sink;
__attribute__((noinline)) void work(void) { sink++; }

__attribute__((noinline)) int again(char** argv, int n) {
  for (int i = 0; i < 10 * n; i++) work();
  if (n == 3) return 5;
  char text[2] = {(char)('1' + n), 0};
  execl(argv[0], argv[0], text, (char*)0);
  return 1;
}

int main(int argc, char** argv) {
  int result = again(argv, argc > 1 ? argv[1][0] - '0' : 1);
  printf("%d\n", result);
  return result;
}
