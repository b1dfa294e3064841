#!/usr/bin/env python3
"""A program that has as many mappings as the kernel lets it have: places that ask for code can no
longer be mapped, so they are stubs, the facts say how many, and every count is still exact."""
import csv
import io
import json
import os

from refusal import accepted, compile_c, complain, finish, path

PROCEDURES, ROUNDS = 1200, 5
ALONE = dict(os.environ, TALLY_CACHE="")
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#define NOINLINE __attribute__((noinline, noclone))
static volatile int sink;
NOINLINE int rare(int i) { sink += i; return i; }
%s
static int (*const all[])(int) = {%s};
int main(int argc, char **argv) {
  /* Neighbours with other rights are mappings of their own. */
  long made = 0;
  for (int fill = argc > 1 && atoi(argv[1]); fill; made++) {
    int rights = made %% 2 ? PROT_READ : PROT_NONE;
    void *page = mmap(0, 4096, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) break;
  }
  for (int round = 0; round < ROUNDS; round++)
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) sink += all[i](round);
  printf("%%d %%d\n", sink, made > 1000);
  fflush(stdout);
  _Exit(0);
}
"""
ONE = r"""
NOINLINE int one%d(int i) {
  if (i > 90) sink += rare(i);
  if (i > 80) sink -= rare(-i);
  if (i > 70) return sink;
  return i + %d;
}
"""


def counts(file, what):
    listing = accepted(["dump", "instructions", path(file)], what).stdout
    result = {}
    for row in csv.DictReader(io.StringIO(listing.decode())):
        if row["module"].endswith("mappings"):
            result[row["address"]] = int(row["count"])
    return result


def facts(file, what):
    dump = accepted(["dump", "profile", path(file), "--format=json"], what).stdout
    return {fact["name"]: fact["value"] for fact in json.loads(dump)["run"]}


program = compile_c("mappings", SOURCE % ("".join(ONE % (i, i) for i in range(PROCEDURES)),
                                          ",".join(f"one{i}" for i in range(PROCEDURES))),
                    f"-DROUNDS={ROUNDS}", "-O1")
expected = sum(round + i for round in range(ROUNDS) for i in range(PROCEDURES))
with_code = {}
# What an earlier run has left is translated before the program has its mappings.
for fill, run, env in (("0", "alone", ALONE), ("1", "alone", ALONE), ("1", "first", None),
                       ("1", "second", None), ("1", "third", None)):
    what = f"{fill} {run}"
    done = accepted(["profile", "-o", path("mappings.tally"), "--", program, fill], what, env=env)
    if done.stdout != f"{expected} {fill}\n".encode() or b"not exact" in done.stderr:
        complain(f"{what}: {done.stdout!r}, {done.stderr!r}")
    with_code[fill, run] = int(facts("mappings.tally", what)["asks_with_code"])
    often = sum(count == ROUNDS for count in counts("mappings.tally", what).values())
    # At least the first comparison and the return of each.
    if often < 2 * PROCEDURES:
        complain(f"{what}: {often} instructions ran {ROUNDS} times")
print(with_code)
# Each procedure has two calls.
if not with_code["0", "alone"] < 50 or not with_code["1", "alone"] > PROCEDURES:
    complain(f"stubs that ask: {with_code}")
finish()
