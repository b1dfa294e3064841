// Claim: a part of the program's own text, mapped once more by the program itself, and code that it
// generates right behind, where the rest of that text would be if a loader had mapped it.
// build: gcc,clang O0,O2 pie,nopie dynamic; gcc O2 nopie static
// oracle: output
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64 };

__asm__(
    ".text\n"
    ".balign 4096\n"
    "leaf: lea 7(%rdi,%rdi), %eax\n"
    "ret\n"
    ".balign 4096\n"
    ".skip 32 * 4096, 0x06\n");  // no instructions
extern int leaf(int);

static unsigned long offset_in_file(uintptr_t address) {
  unsigned long begin, end, offset, found = 0;
  char line[512];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 && address >= begin &&
        address < end) {
      found = offset + (address - begin);
    }
  }
  fclose(maps);
  return found;
}

int main(void) {
  static const unsigned char add_one[] = {0x8d, 0x47, 0x01, 0xc3};  // lea 1(%rdi), %eax; ret
  const int self = open("/proc/self/exe", O_RDONLY);
  char* room = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char* again = mmap(room + 8 * PAGE, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, self,
                     (long)offset_in_file((uintptr_t)leaf));
  char* behind = mmap(again + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (self < 0 || room == MAP_FAILED || again == MAP_FAILED || behind == MAP_FAILED) return 1;
  memcpy(behind, add_one, sizeof add_one);
  if (mprotect(behind, PAGE, PROT_READ | PROT_EXEC) != 0) return 2;
  int (*second)(int) = (int (*)(int))(uintptr_t)again;
  int (*made)(int) = (int (*)(int))(uintptr_t)behind;
  int sum = 0;
  for (int i = 0; i < 100; ++i) sum += leaf(i) + second(i) + made(i);
  printf("%d\n", sum);
  return 0;
}
