// Claim: memory is free that programs lay out for themselves from one terabyte on: the shadows of
// ThreadSanitizer and MemorySanitizer, CLISP's heap, the Java virtual machine's with ZGC.
// build: gcc O2 pie,nopie dynamic,static
// ci: gcc O2 pie dynamic
#include <stdio.h>
#include <sys/mman.h>

static int is_free(unsigned long begin, unsigned long end) {
  const int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
  void* at = mmap((void*)begin, end - begin, PROT_NONE, kind, -1, 0);
  if (at != (void*)begin) return 0;
  return munmap(at, end - begin) == 0;
}

int main(void) {
  printf("%d %d %d\n", is_free(0x010000000000, 0x510000000000),
         is_free(0x600000000000, 0x700000000000), is_free(0x100000000000, 0x1000000c0000));
  return 0;
}
