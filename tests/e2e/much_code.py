#!/usr/bin/env python3
"""A program that runs more code than one code cache holds gets another; its counts stay exact.

It makes procedures of stores in memory that is both writable and executable, where each store is
followed by a comparison of the code behind it, and runs each of them once.
"""
import csv
import io
import sqlite3

from refusal import accepted, compile_c, complain, finish, path, profile

PROCEDURES, STORES = 4500, 100
PROGRAM = compile_c(
    "much",
    r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    int main(int argc, char** argv) {
      const long procedures = atol(argv[1]), stores = atol(argv[2]);
      const long size = stores * 3 + 16;
      char* code = mmap(NULL, procedures * size, PROT_READ | PROT_WRITE | PROT_EXEC,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      for (long i = 0; i < procedures; i++) {
        char* p = code + i * size;
        for (long k = 0; k < stores; k++, p += 3) memcpy(p, "\x89\x77\x04", 3);  // mov [rdi+4], esi
        memcpy(p, "\x01\x37\xc3", 3);                                            // add [rdi], esi
      }
      int sums[2] = {0, 0};
      for (long i = 0; i < procedures; i++) ((void (*)(int*, int))(code + i * size))(sums, i % 7);
      printf("%d %d\n", sums[0], sums[1]);
      return 0;
    }
    """,
)
done = accepted(profile("much.tally", PROGRAM, str(PROCEDURES), str(STORES)), "much code")
expected = f"{sum(i % 7 for i in range(PROCEDURES))} {(PROCEDURES - 1) % 7}\n"
if done.stdout.decode(errors="replace") != expected:
    complain(f"printed {done.stdout!r}, not {expected!r}")
if b"not exact" in done.stderr:
    complain(f"named: {done.stderr!r}")
with sqlite3.connect(path("much.tally")) as database:
    caches = dict(database.execute("SELECT name, value FROM facts"))["code_caches"]
if int(caches) < 4:  # the program and its libraries have two
    complain(f"{caches} code caches: this was not much code")
listing = accepted(["dump", "instructions", path("much.tally")], "dump instructions").stdout
made = [int(row["count"]) for row in csv.DictReader(io.StringIO(listing.decode()))
        if row["module"].startswith("[generated")]
if made != [1] * (PROCEDURES * (STORES + 2)):
    complain(f"{len(made)} instructions, executed {sum(made)} times, instead of "
             f"{PROCEDURES * (STORES + 2)} once each")
finish()
