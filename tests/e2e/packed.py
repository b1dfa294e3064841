#!/usr/bin/env python3
"""In later runs, counters that have never counted lie apart from those that have: fewer pages, and
the same counts, also where what had never run does so after all."""
import taught
from refusal import compile_c, complain, finish, path

PROCEDURES, WAYS = 60, 40
# Each procedure has many ways through it, of which an argument chooses a few.
SOURCE = "".join([
    "#include <stdio.h>\n#include <stdlib.h>\nstatic volatile long sum;\n",
    *(f"__attribute__((noinline)) static void f{p}(unsigned way) {{\n" +
      "".join(f"  if (way == {w}) sum += {p + w}; else sum ^= {w};\n"
              f"  if (way == {w + 1000}) {{ if (sum & {1 + w}) sum *= 3; sum -= {w}; }}\n"
              for w in range(WAYS)) + "}\n" for p in range(PROCEDURES)),
    "int main(int argc, char** argv) {\n  unsigned way = argc > 1 ? atoi(argv[1]) : 0;\n"
    "  for (int i = 0; i < 3000; i++) {\n",
    *(f"    f{p}(way + i % 3);\n" for p in range(PROCEDURES)),
    '  }\n  printf("%ld\\n", sum);\n  return 0;\n}\n'])
PROGRAM = compile_c("packed", SOURCE, "-O1")


def runs(way, cache, *options):
    return taught.Run(PROGRAM, [str(way)], path(f"cache-{cache}"), options)


def same(what, one, other):
    if one.stdout != other.stdout:
        complain(f"{what}: printed {other.stdout!r} instead of {one.stdout!r}")
    if one.counts != other.counts or not one.counts[0]:
        complain(f"{what}: other counts")


plain = {way: taught.Run(PROGRAM, [str(way)], "", ["--no-opt=packed"]) for way in (0, 1010)}
later = {}
for name, options in (("packed", []), ("not", ["--no-opt=packed"])):
    for _ in range(3):
        later[name] = runs(0, name, *options)
        same(f"{name}, as before", plain[0], later[name])
    same(f"{name}, another way", plain[1010], runs(1010, name, *options))
memory = {name: run.fact("memory_threads_bytes") for name, run in later.items()}
counters = {name: run.fact("counters") for name, run in later.items()}
print(memory, counters)
if not memory["packed"] < memory["not"] / 2:
    complain(f"packed, counters take {memory['packed']} bytes, {memory['not']} otherwise")
if counters["packed"] != counters["not"]:
    complain(f"{counters['packed']} counters packed, {counters['not']} otherwise")
finish()
