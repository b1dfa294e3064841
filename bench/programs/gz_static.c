/* zlib's deflate, level 9, from a file to stdout.  Linked statically, not position independent:
 * the shape of program that has no ld.so, no PLT and link-time addresses. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

int main(int argc, char** argv) {
  static unsigned char in[1 << 16], out[1 << 16];
  if (argc != 2) return 2;
  FILE* file = fopen(argv[1], "rb");
  if (!file) {
    perror(argv[1]);
    return 1;
  }
  z_stream z;
  memset(&z, 0, sizeof z);
  if (deflateInit(&z, 9) != Z_OK) return 1;
  int flush;
  do {
    z.avail_in = (unsigned)fread(in, 1, sizeof in, file);
    z.next_in = in;
    flush = feof(file) ? Z_FINISH : Z_NO_FLUSH;
    do {
      z.avail_out = sizeof out;
      z.next_out = out;
      deflate(&z, flush);
      fwrite(out, 1, sizeof out - z.avail_out, stdout);
    } while (z.avail_out == 0);
  } while (flush != Z_FINISH);
  deflateEnd(&z);
  return fclose(file) || fflush(stdout);
}
