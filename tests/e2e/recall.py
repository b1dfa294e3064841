#!/usr/bin/env python3
"""What a run leaves for the next one spares requests and changes no count, whatever it says."""
import csv
import json
import os
import pathlib
import shutil
import subprocess

from refusal import TALLY, accepted, compile_c, complain, finish, path

PROGRAM = compile_c(
    "recalled",
    r"""
    #include <math.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #define A(n) __attribute__((noinline)) \
      static int a##n(int i) { return i * n + (i & 1 ? n : 1); }
    A(1) A(2) A(3) A(4) A(5) A(6) A(7) A(8) A(9)
    typedef int (*function)(int);
    static const function volatile all[] = {a1, a2, a3, a4, a5, a6, a7, a8, a9};
    static int compare(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
    __attribute__((noinline)) static int pick(int i) {
      switch (i % 7) {
        case 0: return a1(i);
        case 1: return a9(i) + 3;
        case 2: return i - 4;
        case 3: return i * 5;
        case 4: return a5(i) ^ 9;
        case 5: return 77;
        default: return i;
      }
    }
    int main(int argc, char** argv) {
      const int way = argc > 1 ? atoi(argv[1]) : 0;
      int values[300];
      long sum = 0;
      for (int i = 0; i < 300; i++) values[i] = way == 0 ? all[i % 9](i) : pick(i * way);
      qsort(values, 300, sizeof *values, compare);
      for (int i = 0; i < 300; i++) sum += values[i] * i;
      if (way > 1) sum += strlen(getenv("PATH")) * 0 + (long)sqrt((double)way);
      printf("%ld\n", sum);
      return 0;
    }
    """, "-lm",
)
FOLDER = pathlib.Path(path("cache"))


def run(name, *arguments, cache=str(FOLDER), options=()):
    """Instructions and edges with a count, and the facts of a run."""
    environment = dict(os.environ, TALLY_CACHE=cache)
    command = [TALLY, "profile", "-o", path(name), *options, "--", PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0 or done.stderr:
        complain(f"{' '.join(command)}: {done.returncode} {done.stderr}")
    counted = []
    for what in ("instructions", "edges"):
        dump = accepted(["dump", what, path(name)], what).stdout.decode()
        rows = csv.DictReader(dump.splitlines())
        counted.append(sorted(tuple(value for key, value in row.items() if key != "source")
                              for row in rows if row["count"] != "0"))
    dump = json.loads(accepted(["dump", "profile", path(name), "--format=json"], "dump").stdout)
    return done.stdout, counted, {fact["name"]: fact["value"] for fact in dump["run"]}


def program_only(counted):
    """The program's own; libc looks at addresses, which change from run to run."""
    return [[row for row in rows if row[0].endswith("recalled")] for rows in counted]


def same(what, one, other):
    if one[0] != other[0]:
        complain(f"{what}: printed {other[0]!r} instead of {one[0]!r}")
    if program_only(one[1]) != program_only(other[1]):
        complain(f"{what}: other counts")
    if not program_only(one[1])[0]:
        complain(f"{what}: nothing was counted")


first = run("first.tally")
if len(list(FOLDER.glob("*.recall"))) != 1:
    complain(f"nothing was left: {os.listdir(FOLDER)}")
second = run("second.tally")
same("the second run", first, second)
misses = [int(r[2]["misses_link"]) + int(r[2]["misses_indirect"]) for r in (first, second)]
if not misses[1] * 3 < misses[0] or int(second[2]["procedures_recalled"]) == 0:
    complain(f"requests of the first run and the second: {misses}")

# Other input: what was recalled in vain counts nothing, what is missing is asked for.
plain = {way: run(f"plain{way}.tally", str(way), cache="") for way in (0, 1, 3)}
for way in (1, 3, 0, 3):
    same(f"way {way} after others", plain[way], run(f"other{way}.tally", str(way)))
for placement in ("blocks", "edges"):
    again = run(f"{placement}.tally", "3", options=[f"--placement={placement}"])
    same(f"--placement={placement}", plain[3], again)

# Switched off: nothing is looked at, nothing left.
off = run("off.tally", options=["--no-opt=recall"], cache=path("untouched"))
same("--no-opt=recall", first, off)
if off[2]["procedures_recalled"] != "0" or os.path.exists(path("untouched")):
    complain("--no-opt=recall looks at what was left, or leaves something")

# A file that is damaged, made for nothing, or another program's.
kept = next(FOLDER.glob("*.recall"))
whole = kept.read_bytes()
for name, content in (("cut", whole[: len(whole) // 2]), ("empty", b""),
                      ("flipped", whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])):
    kept.write_bytes(content)
    damaged = run(f"{name}.tally")
    same(f"a file that is {name}", first, damaged)
    if damaged[2]["procedures_recalled"] != "0":
        complain(f"a file that is {name} was believed")
    if kept.read_bytes() == content:
        complain(f"a file that is {name} was not replaced")
foreign = path("foreign")
subprocess.run([TALLY, "profile", "-o", path("foreign.tally"), "--", "/bin/ls", "/"], check=True,
               env=dict(os.environ, TALLY_CACHE=foreign), stdout=subprocess.DEVNULL)
shutil.copy(next(pathlib.Path(foreign).glob("*.recall")), kept)
same("another program's file", first, run("foreign_file.tally"))

# Where nothing can be written the profile says why, and the counts are the same.
blocked = run("blocked.tally", cache=kept.as_posix())
same("a folder that is a file", first, blocked)
if "recall_not_kept" not in blocked[2]:
    complain("a folder that is a file: the profile does not say that nothing was kept")

# Many at once.
shutil.rmtree(FOLDER)
runs = [subprocess.Popen([TALLY, "profile", "-o", path(f"at_once{i}.tally"), "--", PROGRAM,
                          str(i % 4)],
                         env=dict(os.environ, TALLY_CACHE=str(FOLDER)), stdout=subprocess.DEVNULL)
        for i in range(8)]
if any(one.wait() != 0 for one in runs):
    complain("eight at once failed")
left = sorted(p.suffix for p in FOLDER.iterdir())
if left not in ([".recall"], [".found", ".recall"]):
    complain(f"eight at once left {left}")
same("after eight at once", plain[3], run("after.tally", "3"))
finish()
