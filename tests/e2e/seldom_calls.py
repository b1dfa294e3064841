#!/usr/bin/env python3
"""A call of many targets gets no table if, by an earlier run, it is seldom made, however busy the
procedure is that it stands in; one that is made often gets one, and the counts are the same."""
import csv
import io
import json
import os

from refusal import accepted, compile_c, complain, finish, path

SELDOM, OFTEN = 40, 1 << 16
SOURCE = r"""
    #include <stdio.h>
    static volatile unsigned long sum;
    #define CALLEE(n) __attribute__((noinline, noclone)) static void f##n(void) { sum += n; }
    CALLEE(0) CALLEE(1) CALLEE(2) CALLEE(3) CALLEE(4) CALLEE(5) CALLEE(6) CALLEE(7)
    CALLEE(8) CALLEE(9) CALLEE(10) CALLEE(11) CALLEE(12) CALLEE(13) CALLEE(14) CALLEE(15)
    static void (*volatile callees[])(void) = {f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11,
                                               f12, f13, f14, f15};
    __attribute__((noinline, noclone)) void work(void) {
      for (unsigned i = 0; i < OFTEN; i++) {
        callees[i % OFTEN_TARGETS]();
        if (i % (OFTEN / SELDOM) == 0) callees[i / (OFTEN / SELDOM) % SELDOM_TARGETS]();
      }
    }
    int main(void) {
      work();
      printf("%lu\n", sum);
      return 0;
    }
    """


def profiled(program, name, *options):
    """Sites with a table, and what ran how often."""
    done = accepted(["profile", "-o", path("s.tally"), *options, "--", program], name,
                    env=dict(os.environ, TALLY_CACHE=path(f"{name}.cache")))
    if b"not exact" in done.stderr:
        complain(f"{name} {options}: {done.stderr!r}")
    dump = accepted(["dump", "profile", path("s.tally"), "--format=json"], name).stdout
    facts = {fact["name"]: fact["value"] for fact in json.loads(dump)["run"]}
    listing = accepted(["dump", "instructions", path("s.tally")], name).stdout
    rows = sorted(tuple(row.values()) for row in csv.DictReader(io.StringIO(listing.decode()))
                  if row["module"].endswith(name))
    return int(facts["branches_hashed"]), done.stdout, rows


tables = {}
for name, often, seldom in (("both", 16, 12), ("often", 16, 2), ("seldom", 2, 12)):
    program = compile_c(name, SOURCE, f"-DOFTEN={OFTEN}", f"-DSELDOM={SELDOM}",
                        f"-DOFTEN_TARGETS={often}", f"-DSELDOM_TARGETS={seldom}", "-O2")
    # Translated again in mid-run, it would know.
    first = profiled(program, name, "--no-opt=renewal")
    profiled(program, name)
    later = profiled(program, name)
    without = profiled(program, name, "--no-opt=sparse")
    if not first[1:] == later[1:] == without[1:] or not first[2]:
        complain(f"{name}: runs differ")
    tables[name] = (first[0], later[0], without[0])
print("sites with tables: first, later, later without sparse", tables)
# In the first run nothing is known of either.
for run, expected in ((0, (1, 1)), (1, (1, 0)), (2, (1, 1))):
    at_often = tables["both"][run] - tables["seldom"][run]
    at_seldom = tables["both"][run] - tables["often"][run]
    if (at_often, at_seldom) != expected:
        complain(f"tables of what is called often and seldom: {at_often}, {at_seldom}, "
                 f"not {expected}: {tables}")
finish()
