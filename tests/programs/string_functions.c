// Claim: libc's vector string functions (chosen by cpuid, ending in jump tables and rep strings)
// are exact at every length and alignment tried.
// build: gcc,clang O0 pie,nopie static
// ci: gcc O0 nopie static
#include <stdio.h>
#include <string.h>
#include <strings.h>

static char a[4096], b[4096];

int main(void) {
  static const int lengths[] = {0, 1, 3, 4, 7, 8, 15, 16, 31, 33, 64, 65, 127, 129, 257, 1000, 3000};
  unsigned long sum = 0;
  for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    int n = lengths[i];
    for (int shift = 0; shift < 2; shift++) {
      memset(a + shift, 'a' + shift, (size_t)n);
      a[shift + n] = 0;
      memcpy(b, a + shift, (size_t)n + 1);
      memmove(b + 1, b, (size_t)n + 1);
      sum += strlen(b + 1) + (unsigned long)(memcmp(a + shift, b + 1, (size_t)n) == 0);
      sum += (unsigned long)(strchr(b + 1, 'z') == NULL) + (memchr(b, 'z', (size_t)n) == NULL);
      sum += (unsigned long)(strcasecmp(a + shift, b + 1) == 0) + strspn(b + 1, "ab");
      sum = sum * 31 % 1000003;
    }
  }
  printf("%lu\n", sum);
  return 0;
}
