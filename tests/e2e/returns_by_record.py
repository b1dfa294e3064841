#!/usr/bin/env python3
"""How calls and returns are made goes by what the last run of the program has seen: pairs of call
and ret where procedures are called from many places, jumps where each is called from one or
returns soon.  A first run goes by the size of the program and its libraries.  The counts are the
same in both forms, and the form changes with what the program does."""
import csv
import io
import os
import sqlite3

from refusal import accepted, compile_c, complain, finish, path

SITES = 16


def source(bytes_of_code):
    text = ["#include <stdio.h>\n#define APART __attribute__((noinline, noclone))\n",
            "static volatile int sum;\nAPART static int leaf(int n) {\n"
            "  for (volatile int i = 0; i < TAKEN; ++i) n = n * 3 + 1;\n  return n;\n}\n"]
    text += [f"APART static void caller_{i}(int n) {{ sum += leaf(n + {i}); }}\n"
             for i in range(SITES)]
    text += ["int main(int argc, char** argv) {\n  for (int i = 0; i < 20000; ++i) {\n"
             "    if (argc > 1) { caller_0(i); caller_0(i + 1); continue; }\n"]
    text += [f"    caller_{i}(i);\n" for i in range(SITES)]
    text += ['  }\n  printf("%d\\n", sum);\n  return 0;\n}\n',
             f'__asm__(".text\\n.space {bytes_of_code}");\n']
    return "".join(text)


def profiled(program, cache, *arguments, options=()):
    file = path("run.tally")
    # A long first run may find out by itself (returns_in_mid_run.py).
    done = accepted(["profile", "-o", file, "--no-opt=renewal", *options, "--", program,
                     *arguments], "profile",
                    env=dict(os.environ, TALLY_CACHE=path("left-by-" + cache)))
    text = accepted(["dump", "edges", file, "--format=csv"], "dump").stdout.decode()
    edges = {tuple(row[k] for k in ("from_block", "to_block", "kind", "count"))
             for row in csv.DictReader(io.StringIO(text))
             if row["module"] == program and row["to_module"] == program and row["count"] != "0"}
    with sqlite3.connect(file) as database:
        facts = dict(database.execute("SELECT name, value FROM facts"))
    return facts["returns_paired"] == "1", int(facts["return_millibits"]), (done.stdout, edges)


def expect(what, said, paired, bits, like=None):
    print(f"{what}: paired {said[0]}, {said[1]} millibits")
    if said[0] != paired:
        complain(f"{what}: paired is {said[0]}")
    if not bits[0] <= said[1] <= bits[1]:
        complain(f"{what}: {said[1]} millibits for each call, expected {bits}")
    if like is not None and said[2] != like[2]:
        complain(f"{what}: other output or other counts")


MANY, FEW = (1900, 2100), (0, 700)  # half of the calls are to `leaf`, from sixteen places
for name, size, first in (("small", 4096, False), ("large", 4 << 20, True)):
    program = compile_c(name, source(size), "-O1", "-DTAKEN=5")
    told = profiled(program, name)
    expect(f"{name}, first", told, first, MANY)
    expect(f"{name}, then", profiled(program, name), True, MANY, told)
    expect(f"{name}, off", profiled(program, name, options=["--no-opt=paired"]), False, MANY, told)
    expect(f"{name}, once more", profiled(program, name), True, MANY, told)
    # Another input, other ways: the run after it knows.
    few = profiled(program, name, "few")
    expect(f"{name}, few", few, True, FEW)
    expect(f"{name}, few again", profiled(program, name, "few"), False, FEW, few)
    expect(f"{name}, few for the first time", profiled(program, "new" + name, "few"), first, FEW,
           few)
    expect(f"{name}, few again", profiled(program, "new" + name, "few"), False, FEW, few)
# What takes no branches is foretold by the call itself.
program = compile_c("short", source(4096), "-O1", "-DTAKEN=0")
told = profiled(program, "short")
expect("short, first", told, False, (0, 50))
expect("short, then", profiled(program, "short"), False, (0, 50), told)
# Small programs of large libraries are like large ones; the library stands where only its program
# says.
for name, size, first in (("some", 4 << 20, False), ("much", 41 << 20, True)):
    os.makedirs(path(name + ".d"), exist_ok=True)
    library = compile_c(f"{name}.d/lib{name}.so",
                        f'__asm__(".text\\n.space {size}");\nint library(void) {{ return 0; }}\n',
                        "-shared", "-fPIC")
    program = compile_c(f"by_{name}", source(4096), "-DTAKEN=5", "-Wl,--no-as-needed", library,
                        f"-Wl,-rpath,$ORIGIN/{name}.d")
    told = profiled(program, name)
    expect(f"{name} in a library, first", told, first, MANY)
    expect(f"{name} in a library, then", profiled(program, name), True, MANY, told)
finish()
