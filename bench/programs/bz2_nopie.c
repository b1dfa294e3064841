/* libbz2's compressor, level 9, from a file to stdout.  Dynamically linked against libc, but not
 * position independent: jump tables with absolute addresses, direct calls through a non-PIC PLT. */
#include <bzlib.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  FILE* file = fopen(argv[1], "rb");
  if (!file) {
    perror(argv[1]);
    return 1;
  }
  const unsigned chunk = 900000;
  char* in = malloc(chunk);
  char* out = malloc(chunk + chunk / 50 + 1000);
  if (!in || !out) return 1;
  for (size_t got; (got = fread(in, 1, chunk, file)) > 0;) {
    unsigned size = chunk + chunk / 50 + 1000;
    if (BZ2_bzBuffToBuffCompress(out, &size, in, (unsigned)got, 9, 0, 0) != BZ_OK) return 1;
    fwrite(out, 1, size, stdout);
  }
  free(in);
  free(out);
  return fclose(file) || fflush(stdout);
}
