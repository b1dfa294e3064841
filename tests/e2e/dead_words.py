#!/usr/bin/env python3
"""Code without call frame information calls back from libc's bsearch, and later ends the program
while bsearch's return address still lies on the stack, dead: what it had been called from is
written over.  The back-trace does not take it for a call that is open.  The same while it is."""
import sqlite3

from refusal import accepted, compile_c, complain, finish, path

SOURCE = r"""
#include <stdlib.h>
#include <string.h>
#define APART __attribute__((noinline, noclone))
static int ends;
// Not as its header would have it, in here.
static void* (*volatile find)(const void*, const void*, size_t, size_t,
                              int (*)(const void*, const void*)) = bsearch;
static const int numbers[] = {1, 3, 5, 7};
APART static int compare(const void* a, const void* b) {
  if (ends) exit(0);
  return *(const int*)a - *(const int*)b;
}
APART static int search(int n) {
  volatile char deeper[256];
  memset((char*)deeper, 1, sizeof deeper);
  return find(&n, numbers, 4, sizeof n, compare) != NULL;
}
APART static int leave(int n) {
  volatile unsigned long words[512];
  int left = 0;
  for (int i = 0; i < 512; ++i) {
    if (words[i] - (unsigned long)find < 256) ++left;
    else words[i] = 1;
  }
  exit(left > 0 ? n : 9);
}
int main(int argc, char** argv) {
  int found = 0;
  for (int i = 0; i < 9; ++i) found += search(i);
  ends = argc > 1;
  if (ends) return search(5);
  return leave(found);
}
"""

program = compile_c("dead", SOURCE, "-O1", "-static", "-no-pie", "-fno-asynchronous-unwind-tables",
                    "-fno-unwind-tables")
for arguments, status in (([], 4), (["active"], 0)):
    accepted(["profile", "-o", path("dead.tally"), "--", program, *arguments], f"{arguments}",
             status=status)
    with sqlite3.connect(path("dead.tally")) as database:
        active = [name for (name,) in database.execute(
            "SELECT procedures.name FROM abnormal JOIN blocks ON blocks.id = abnormal.block JOIN "
            "procedures ON procedures.id = blocks.procedure WHERE detail = "
            "'still active at the end'")]
    if ("bsearch" in active) != bool(arguments):
        complain(f"{arguments}: active at the end are {active}")
    print(arguments, active)
finish()
