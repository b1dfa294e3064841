// Counts that depend on the surroundings: on where the stack lies, on how many variables there
// are, on what else is mapped.  `fixed` depends on nothing.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static volatile int sink;

// As often as the stack's address has it.
__attribute__((noinline)) static void by_address(void) {
  volatile int here = 0;
  for (uintptr_t i = 0; i < ((uintptr_t)&here >> 4 & 0xffff); ++i) sink += here;
}

__attribute__((noinline)) static void by_variables(char** environment) {
  for (; *environment != NULL; ++environment) ++sink;
}

// Reads by the page, and counts lines.
__attribute__((noinline)) static void by_mappings(void) {
  char text[4096];
  const int maps = open("/proc/self/maps", O_RDONLY);
  ssize_t got;
  while ((got = read(maps, text, sizeof text)) > 0) {
    for (ssize_t i = 0; i < got; ++i) {
      if (text[i] == '\n') ++sink;
    }
  }
  close(maps);
}

__attribute__((noinline)) static int fixed(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += i % 7 == 3 ? 2 : 1;
  return sum;
}

int main(int argc, char** argv, char** environment) {
  (void)argc, (void)argv;
#ifdef MAPPINGS
  by_mappings();
#else
  by_address();
  by_variables(environment);
#endif
  printf("%d\n", fixed(100));
  return 0;
}
