#!/usr/bin/env python3
"""What makes runs faster changes no count: a program whose procedures are translated ahead and
whose jump tables are joined at once has the same blocks and edges with each of the optimizations
off, equal to what its source says, and asks less often with them on.  Translation without
counters (--placement=none) leaves the program's doings alone and says that nothing was counted."""
import csv
import io
import pathlib
import sqlite3
import subprocess

from refusal import accepted, compile_c, complain, finish, path, refused, run

# `chain` calls one procedure after the other whenever it is entered; `leave` ends it in the middle
# at times, so that what was made ahead behind it is not called.  `pick` and `step` jump through
# tables.  (What libc has of that is chosen by the processor.)
SOURCE = r"""
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#define NOINLINE __attribute__((noinline, noclone))
static jmp_buf out;
static volatile int sink;
NOINLINE void one(int i) { sink += i; }
NOINLINE void two(int i) { sink ^= i; }
NOINLINE void leave(int i) { if (i % 10 == 3) longjmp(out, 1); }
NOINLINE void behind(int i) { sink -= i; }
NOINLINE void never_called(void) { sink = 0; }
NOINLINE void chain(int i) { one(i); two(i); leave(i); behind(i); sink += abs(i) + atoi("7"); }
NOINLINE void doomed(void) { one(1); exit(sink == -1); never_called(); }
NOINLINE int pick(int i) {
  switch (i % 12) {
    case 0: return sink + 1;   case 1: return sink * 3;  case 2: return sink - 7;
    case 3: return sink ^ 5;   case 4: return sink / 3;  case 5: return sink | 9;
    case 6: return sink & 63;  case 7: return ~sink;     case 8: return sink << 1;
    case 9: return sink % 11;  default: return i;
  }
}
// The index that `step` jumps by is bounded where it jumps, so that it can lead there.
NOINLINE void step(unsigned i) {
  switch (i & 7) {
    case 0: sink += 1; break;  case 1: sink *= 3; break;   case 2: sink -= 7; break;
    case 3: sink ^= 5; break;  case 4: sink |= 9; break;   case 5: sink &= 63; break;
    case 6: sink <<= 1; break; case 7: sink = ~sink; break; default: __builtin_unreachable();
  }
}
int main(void) {
  for (volatile int i = 0; i < 1000; ++i) {
    if (setjmp(out) == 0) chain(i);
    step(i * 5);
    sink = pick(i % 23 > 9 ? 11 : i);
  }
  printf("%d\n", sink);
  fflush(stdout);
  doomed();
}
"""
EXPECTED_ENTRIES = {"one": 1001, "two": 1000, "leave": 1000, "behind": 900, "chain": 1000,
                    "pick": 1000, "step": 1000, "doomed": 1}


def rows(what, file):
    text = accepted(["dump", what, path(file), "--format=csv"], f"dump {what} {file}").stdout
    return list(csv.DictReader(io.StringIO(text.decode())))


def executed(file):
    """Instructions and edges with a count, of the program and of libc."""
    instructions = {(r["module"], r["address"]): r["count"] for r in rows("instructions", file)}
    edges = {(r["module"], r["from_block"], r["to_module"], r["to_block"], r["kind"]): r["count"]
             for r in rows("edges", file) if int(r["count"]) > 0}
    return instructions, edges


def only(program, counted):
    """The program's own part: what ld.so and libc do depends on the environment's length."""
    instructions, edges = counted
    return ({k: v for k, v in instructions.items() if k[0] == program and int(v) > 0},
            {k: v for k, v in edges.items() if k[0] == program and k[2] == program})


def facts(file):
    with sqlite3.connect(path(file)) as database:
        return dict(database.execute("SELECT name, value FROM facts WHERE run = 0"))


def entries(file):
    with sqlite3.connect(path(file)) as database:
        return dict(database.execute("SELECT name, entries FROM procedures"))


for kind, flags in {"pie": [], "no-pie": ["-no-pie"], "static": ["-static"],
                    "now": ["-Wl,-z,now"]}.items():
    program = compile_c(kind, SOURCE, *flags)
    results, misses, code = {}, {}, {}
    for off in ("", "ahead", "tables", "ahead,tables", "joins", "hashes", "flags", "low32",
                "unspilled", "index", "index,again", "sealed", "through", "packed", "sparse",
                "asks", "near", "rest", "again", "defer", "defer,ahead",
                "defer,tables", "defer,ahead,tables"):
        file = f"{kind}-{off.replace(',', '-') or 'on'}.tally"
        option = [f"--no-opt=recall{',' if off else ''}{off}".replace(",again", "")]
        done = accepted(["profile", "-o", path(file), *option, "--", program], f"{kind} {off}")
        results[off] = (done.stdout, only(program, executed(file)))
        misses[off] = int(facts(file)["misses_link"]) + int(facts(file)["misses_indirect"])
        code[off] = int(facts(file)["code_cache_bytes"])
        said = {name: count for name, count in entries(file).items() if name in EXPECTED_ENTRIES}
        if said != EXPECTED_ENTRIES:
            complain(f"{kind}, without {off or 'nothing'}: entries {said}")
        if entries(file).get("never_called", 0) != 0:
            complain(f"{kind}, without {off or 'nothing'}: never_called was called")
    for off, result in results.items():
        if result != results[""]:
            complain(f"{kind}: counts differ without {off}")
    print(kind, "misses", misses)
    # Most targets of tables have no code yet, unless blocks get theirs all at once.
    if not (misses[""] < misses["ahead"] and
            misses["defer"] < misses["defer,ahead"] < misses["defer,ahead,tables"]):
        complain(f"{kind}: translating ahead spares no misses: {misses}")
    if not misses["defer"] < misses["defer,tables"]:
        complain(f"{kind}: joining tables spares no misses: {misses}")
    if not misses[""] < misses["joins"]:
        complain(f"{kind}: joining links spares no misses: {misses}")
    # In one run of two hundred addresses lie so that all their bits are compared anyway.
    for longer in ("flags", "low32", "asks", "near"):
        if not code[""] < code[longer] and not code["again"] < code[longer]:
            complain(f"{kind}: without {longer} the code is not longer: {code}")
    # What leads by the index is code more, and goes together with it.
    without_index = min(code["index"], code["index,again"])
    if not without_index < max(code[""], code["again"]):
        complain(f"{kind}: without index the code is not shorter: {code}")
    # Without that, no index leads either; but stubs of pairs that keep rcx, and flags through it,
    # are longer.
    if code["unspilled"] in (code[""], code["again"]):
        complain(f"{kind}: without unspilled the code is the same: {code}")
    # The table of `pick` is read through code of its own.
    if not code["hashes"] < max(code[""], code["again"]):
        complain(f"{kind}: without hashes the code is not shorter: {code}")
    native = run(["profile", "-o", path("none.tally"), "--placement=none", "--", program],
                 f"{kind} none")
    if native.stdout != results[""][0] or native.status != 0:
        complain(f"{kind}: without counters it prints {native.stdout!r}, ends {native.end()}")
    if b"nothing was counted" not in native.stderr:
        complain(f"{kind}: without counters it says {native.stderr!r}")
    if rows("instructions", "none.tally"):
        complain(f"{kind}: instructions without counters")
    shown = run(["report", path("none.tally")], f"{kind} report").stdout
    if b"nothing was counted" not in shown:
        complain(f"{kind}: the report does not say that nothing was counted: {shown!r}")

# Two programs of one session: the second one's procedures are known.  A large program: its calls
# are emitted in another form.
for off, known in (("recall", True), ("recall,shared", False)):
    accepted(["profile", "-o", path("two.tally"), f"--no-opt={off}", "--", "/bin/sh", "-c",
              f"{program}; {program}"], f"two programs, {off}")
    with sqlite3.connect(path("two.tally")) as database:
        values = [int(value) for (value,) in
                  database.execute("SELECT value FROM facts WHERE name = 'procedures_known'")]
    if any(values) != known:
        complain(f"--no-opt={off}: known procedures {values}")
compiler = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True,
                          check=True).stdout.strip()
source = pathlib.Path(path("small.c"))
source.write_text("int f(int a) { return a * 3; }\n")
large = [compiler, "-quiet", "-o", "-", str(source)]
on = accepted(["profile", "-o", path("on.tally"), "--no-opt=recall", "--", *large], "paired")
off = accepted(["profile", "-o", path("off.tally"), "--no-opt=recall,paired", "--", *large],
               "not paired")
if on.stdout != off.stdout or b"f:" not in on.stdout:
    complain(f"cc1: {on.stdout!r} and {off.stdout!r}")
sizes = [int(facts(file)["code_cache_bytes"]) for file in ("on.tally", "off.tally")]
if not sizes[1] < 0.97 * sizes[0]:  # by some 7 %
    complain(f"--no-opt=paired: the code is not shorter: {sizes}")

refused(["profile", "--no-opt=speed", "--", "/bin/true"], "no such optimization", 2, ["ahead"])
refused(["profile", "--placement=some", "--", "/bin/true"], "no such placement", 2, ["none"])
refused(["profile", "--placement=none", f"--keep-counters={path('kept')}", "--", "/bin/true"],
        "nothing to keep", 2, ["nothing"])
finish()
