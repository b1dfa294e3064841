// Claim: a program that reads and writes much through libc has the same output.
// build: gcc,clang O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic
// oracle: closed
// count: line = 20000
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void line(int i) {
  char text[64];
  snprintf(text, sizeof text, "%d %x %.3f", i, i * 7919, i / 7.0);
  puts(text);
}

int main(void) {
  for (int i = 0; i < 20000; i++) line(i);
  char* all = NULL;
  size_t size = 0;
  FILE* memory = open_memstream(&all, &size);
  for (int i = 0; i < 5000; i++) fprintf(memory, "%08d", i);
  fclose(memory);
  printf("%zu %d\n", strlen(all), memcmp(all, "00000000", 8));
  free(all);
  return 0;
}
