// Counts that depend on the surroundings: on where the stack lies, on how many variables there
// are, on what else is mapped, and in which order.  `fixed` depends on nothing.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
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

// Otherwise where the kernel places what is mapped later above what was mapped before.
__attribute__((noinline)) static void by_order(void) {
  const char* first = mmap(NULL, 0x10000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const char* second = mmap(NULL, 0x10000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < (second > first ? 5 : 3); ++i) ++sink;
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
#elif defined ORDER
  by_order();
#else
  by_address();
  by_variables(environment);
#endif
  printf("%d\n", fixed(100));
  return 0;
}
