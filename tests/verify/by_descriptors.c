// Counts that depend on what standard input and output are.  `fixed` depends on the file `n` alone.
// With an argument the input is read.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int sink;

// As often as the kind of the output says, and otherwise for a terminal.
__attribute__((noinline)) static void by_output(void) {
  struct stat status;
  if (fstat(1, &status) != 0) return;
  for (unsigned i = 0; i < (status.st_mode & S_IFMT) >> 12; ++i) ++sink;
  if (S_ISREG(status.st_mode) && lseek(1, 0, SEEK_CUR) > 0) ++sink;
  if (isatty(1)) sink += 3;
}

__attribute__((noinline)) static void by_input(void) {
  struct stat status;
  if (fstat(0, &status) != 0) return;
  for (unsigned i = 0; i < (status.st_mode & S_IFMT) >> 12; ++i) ++sink;
  char byte;
  while (read(0, &byte, 1) == 1) ++sink;
}

__attribute__((noinline)) static int fixed(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += i % 7 == 3 ? 2 : 1;
  return sum;
}

int main(int argc, char** argv) {
  (void)argv;
  char digits[16] = {0};
  FILE* file = fopen("n", "r");
  if (file == NULL || fgets(digits, sizeof digits, file) == NULL) return 1;
  const int sum = fixed(atoi(digits));
  by_output();
  if (argc > 1) by_input();
  printf("%d\n", sum);
  return 0;
}
