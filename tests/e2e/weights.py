#!/usr/bin/env python3
"""The next run of a program puts its counters where the counts of the last one say they cost least.

`wrong` holds a loop whose rare ways lie where the rules of thumb, and the compiler, expect the
frequent ones.  Counts must be the same whatever is on record.
"""
import os
import pathlib
import shutil
import struct
import subprocess

import taught
from refusal import TALLY, compile_c, complain, finish, path

PROGRAM = compile_c(
    "weighed",
    r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #define RARELY(x) __builtin_expect((x), 1)  /* and that is a lie */
    static volatile long sums[8];
    __attribute__((noinline)) static void wrong(long n, long part) {
      for (long i = 0; i < n; i++) {
        if (RARELY(i % part == 1)) sums[0] += i; else sums[1]++;
        if (RARELY(i % part == 2)) sums[2] += i; else sums[3]++;
        if (RARELY(i % part == 3)) sums[4] += i; else sums[5]++;
        if (RARELY(i % part == 4)) sums[6] += i; else sums[7]++;
      }
    }
    int main(int argc, char** argv) {
      const long n = argc > 1 ? atol(argv[1]) : 200000;
      const long part = argc > 2 ? atol(argv[2]) : 1000;
      wrong(n, part);
      if (argc > 3 && fork() == 0) {
        wrong(n, part);
        _exit(0);
      }
      if (argc > 3) wait(NULL);
      long all = 0;
      for (int i = 0; i < 8; i++) all = all * 31 + sums[i];
      printf("%ld\n", all);
      return 0;
    }
    """,
)
FOLDER = pathlib.Path(path("cache"))


class Run(taught.Run):
    def __init__(self, *arguments, cache=FOLDER, options=()):
        super().__init__(PROGRAM, arguments, cache, options)
        self.counts = [[row for row in rows if row[-1] != "0"] for rows in self.counts]

    @property
    def increments(self):
        return self.fact("counter_increments")

    @property
    def weighed(self):
        return self.fact("procedures_weighed")

    @property
    def apart(self):
        return self.fact("blocks_apart")


def same(what, one, other):
    if one.stdout != other.stdout or one.counts != other.counts or not one.counts[0]:
        complain(f"{what}: other counts")


def fewer(what, guessed, weighed, share=0.8):
    print(f"{what}: {guessed.increments:,} and {weighed.increments:,}")
    if not weighed.increments < share * guessed.increments:
        complain(f"{what}: {weighed.increments} increments where guessed weights need "
                 f"{guessed.increments}")


def about(what, one, other):
    if abs(one.increments - other.increments) > 0.02 * one.increments:
        complain(f"{what}: {one.increments} and {other.increments} increments")


def fnv(content):
    digest = 0xcbf29ce484222325
    for byte in content:
        digest = (digest ^ byte) * 0x100000001b3 % 2**64
    return digest


class Record:
    """The file that is left, as far as weights go (src/cache/recall.cpp)."""
    WEIGHED = struct.Struct("<IIQIBI")
    RETURNS = 12  # bytes
    ALIKE = 1

    def __init__(self, content):
        at = 12
        modules = struct.unpack_from("<I", content, at)[0]
        at += 4
        for _ in range(modules):
            at += 1 + content[at]
        for size in (13, 12, 24):
            at += 4 + size * struct.unpack_from("<I", content, at)[0]
        self.before = content[:at]
        count = struct.unpack_from("<I", content, at)[0]
        at += 4
        self.weighed = [list(self.WEIGHED.unpack_from(content, at + i * self.WEIGHED.size))
                        for i in range(count)]
        at += count * self.WEIGHED.size
        end = len(content) - 8 - self.RETURNS - self.ALIKE
        self.steps, self.behind = content[at:end], content[end:-8]

    def encoded(self):
        body = self.before + struct.pack("<I", len(self.weighed))
        body += b"".join(self.WEIGHED.pack(*one) for one in self.weighed)
        body += self.steps + self.behind
        return body + struct.pack("<Q", fnv(body))


first = Run()
second = Run()
fewer("the second run", first, second)
same("the second run", first, second)
if first.weighed != 0 or second.weighed == 0:
    complain(f"procedures with weights: {first.weighed}, {second.weighed}")

# Blocks lie as the first run went through them.
if first.apart != 0 or second.apart == 0:
    complain(f"blocks that lie apart: {first.apart}, {second.apart}")
by_address = Run(options=["--no-opt=order"])
same("--no-opt=order", first, by_address)
if by_address.apart != 0 or by_address.weighed == 0:
    complain(f"without order {by_address.apart} blocks lie apart, of {by_address.weighed} weighed")

# Switched off, and other placements: as without a record; and they leave it as useful as it was.
kept = next(FOLDER.glob("*.recall"))
off = Run(options=["--no-opt=weights"])
about("--no-opt=weights", first, off)
same("--no-opt=weights", first, off)
# libc looks at addresses, so a run may take a way of its own there.
for _ in range(4):
    content = kept.read_bytes()
    Run()
    if kept.read_bytes() == content:
        break
else:
    complain("runs with nothing new replace the record")
for placement in ("blocks", f"feedback={path('run1.tally')}"):
    with_record = Run(options=[f"--placement={placement}"])
    about(f"--placement={placement}", Run(options=[f"--placement={placement}"], cache=""),
          with_record)
    same(f"--placement={placement}", first, with_record)

# Another input, for which the weights are wrong: guessed ones might do better, counts are exact.
other = Run("150000", "1", cache="")
same("weights of another input", other, Run("150000", "1"))

# A fork child shares its parent's weights, and leaves nothing.
alone = Run("100000", "1000", "fork", cache="")
forked = Run("100000", "1000", "fork")
same("a fork child", alone, forked)
fewer("a fork child's parent", alone, forked)

# Graphs that are not those of then, and steps that nobody has measured.
record = Record(content)
if record.encoded() != content:
    complain("the test does not know the record's form")
for one in record.weighed:
    one[1] ^= 1
kept.write_bytes(record.encoded())
strange = Run()
about("procedures of other shapes", first, strange)
same("procedures of other shapes", first, strange)
if strange.weighed != 0:
    complain("weights of procedures of other shapes are believed")
fewer("the run after that", first, Run())
record = Record(content)
count = sum(one[3] for one in record.weighed)
for name, steps in (("all alike", b"\x07" * count),
                    ("in a row", bytes(1 + i % 255 for i in range(count)))):
    record.steps = struct.pack("<I", count) + steps
    kept.write_bytes(record.encoded())
    nonsense = Run()
    same(f"steps {name}", first, nonsense)
    if nonsense.weighed == 0:
        complain(f"steps {name}: not read")
# Whoever leaves its entries to whom: others than those that the run before has found fit.
record = Record(content)
count = len(record.weighed)
for name, ranks in (("all alike", [5] * count), ("in a row", range(1, count + 1)),
                    ("the other way round", range(count, 0, -1)),
                    ("at random", [number * 7919 % 5 for number in range(count)])):
    for one, rank in zip(record.weighed, ranks):
        one[5] = rank
    kept.write_bytes(record.encoded())
    ranked = Run("100000", "1000", "fork")
    same(f"ranks {name}", alone, ranked)
    if ranked.fact("procedures_left_to_callers") < 10:
        complain(f"ranks {name}: not read")
for one in record.weighed:
    one[3] += 1
kept.write_bytes(record.encoded())
damaged = Run()
same("too few steps", first, damaged)
if damaged.facts["procedures_recalled"] != "0" or damaged.weighed != 0:
    complain("a record with too few steps was believed")

# Procedures that ran often lie in front of the others.
ORDERED = compile_c("ordered", r"""
    #define A(name) __attribute__((noinline)) static int name(int i)
    A(once) { return i * 3 + 1; }
    A(often) { return i * 5 + 2; }
    A(seldom) { return once(i) ^ 7; }
    int main(int argc, char** argv) {
      (void)argv;
      int sum = seldom(argc);
      for (int i = 0; i < 1000; i++) sum += often(i);
      return sum == 0;
    }
    """, "-no-pie")
symbols = {fields[2]: int(fields[0], 16) for fields in
           (line.split() for line in subprocess.run(["nm", ORDERED], capture_output=True, text=True,
                                                    check=True).stdout.splitlines())
           if len(fields) == 3}


def places(*options):
    """Where the translations of procedures begin, in a later run."""
    map_file, cache = path("map"), path("_".join(("ordered_cache", *options)))
    for _ in range(2):
        subprocess.run([TALLY, "profile", "-o", path("ordered.tally"), *options, "--", ORDERED],
                       check=True, env=dict(os.environ, TALLY_CACHE=cache, TALLY_CODE_MAP=map_file))
    pieces = [line.split() for line in pathlib.Path(map_file).read_text().splitlines()]
    return [min(int(begin, 16) for begin, _, _, original in pieces
                if int(original, 16) == symbols[name])
            for name in ("often", "once", "seldom")]


often, *others = places()
if not often < min(others):
    complain(f"what ran often does not lie in front: {often:#x}, {others}")
often, *others = places("--no-opt=order")
if not often > min(others):
    complain(f"--no-opt=order: {often:#x}, {others}")

# A small run's weights are worth less than a large one's, which replaces them, but not they those.
shutil.rmtree(FOLDER)
Run("3")
same("after a small run", first, Run())
fewer("after a small run and a large one", first, Run())
Run("3")
fewer("after another small run", first, Run())
finish()
