#!/usr/bin/env python3
"""What a session has learned of a file is used for later runs, but only while it is that file: a
library that is replaced, or changed in place with its times put back, between two runs of one
session is found anew; and procedures that are shared count the same at other addresses, with jump
tables that hold relocated addresses."""
import csv
import io
import os
import sqlite3
import subprocess
import time

from refusal import accepted, complain, finish, path, profile, run

LIBRARY = r"""
int work(int rounds) {
  static const void *const table[] = {&&add, &&twice, &&done};  // relocated when it is loaded
  int x = 1, next = 0;
  for (int i = 0; i < rounds; ++i) {
    goto *table[next];
  add:
    x += STEP;
    next = 1;
    continue;
  twice:
    PADDING
    x ^= i;
    next = i > BOUND ? 2 : 0;
    continue;
  done:
    next = 0;
  }
  return x;
}
"""
PROGRAM = r"""
#include <stdio.h>
int work(int);
int main(void) { printf("%d\n", work(ROUNDS)); return 0; }
"""
# The library's versions: every one does its work in other blocks a different number of times.
VERSIONS = {"first": ("3", "50", ""), "second": ("5", "150", "x *= 3; x -= i;"),
            "third": ("7", "90", "")}
ROUNDS = 1000


def compile_all():
    for name, (step, bound, padding) in VERSIONS.items():
        source = LIBRARY.replace("STEP", step).replace("BOUND", bound)
        source = source.replace("PADDING", padding)
        with open(path(name + ".c"), "w", encoding="ascii") as f:
            f.write(source)
        subprocess.run(["gcc", "-O1", "-w", "-shared", "-fPIC", path(name + ".c"), "-o",
                        path(name + ".so")], check=True)
    subprocess.run(["cp", path("first.so"), path("libwork.so")], check=True)
    with open(path("program.c"), "w", encoding="ascii") as f:
        f.write(PROGRAM.replace("ROUNDS", str(ROUNDS)))
    subprocess.run(["gcc", "-O1", path("program.c"), "-o", path("program"), path("libwork.so"),
                    "-Wl,-rpath," + path("")], check=True)


def library_counts(file, number):
    """Counts of the library's instructions in one run, by address."""
    text = accepted(["dump", "instructions", f"--run={number}", path(file)], "dump").stdout
    return {row["address"]: row["count"]
            for row in csv.DictReader(io.StringIO(text.decode()))
            if row["module"] == path("libwork.so")}


def facts(file, name):
    with sqlite3.connect(path(file)) as database:
        rows = database.execute("SELECT run, value FROM facts WHERE name = ?", (name,))
        return {run_id: value for run_id, value in rows}


compile_all()
# A file that was changed a moment ago is not yet taken to stay as it is.
time.sleep(2.5)

# Each version by itself: what it executes.
alone = {}
for version in VERSIONS:
    subprocess.run(["cp", path(version + ".so"), path("libwork.so")], check=True)
    done = run(profile(version + ".tally", path("program")), version)
    alone[version] = (done.stdout, library_counts(version + ".tally", 1))
if len({str(sorted(counts.items())) for _, counts in alone.values()}) != len(VERSIONS):
    complain("the versions do not differ in what they execute")
sizes = {os.path.getsize(path(version + ".so")) for version in ("first", "third")}
if len(sizes) != 1:
    complain("the version that takes the first one's place in place has another size")

# Twice the first, then replaced, then the new one changed in place, its times put back.
subprocess.run(["cp", path("first.so"), path("libwork.so")], check=True)
subprocess.run(["touch", "-d", "2020-01-01", path("libwork.so"), path("first.so")], check=True)
time.sleep(2.5)
STEPS = f"""
{path('program')}; {path('program')}
cp {path('second.so')} {path('new.so')}; mv {path('new.so')} {path('libwork.so')}
{path('program')}
cp {path('first.so')} {path('new.so')}; mv {path('new.so')} {path('libwork.so')}
touch -d 2020-01-01 {path('libwork.so')}
sleep 2.5
{path('program')}; {path('program')}
dd if={path('third.so')} of={path('libwork.so')} conv=notrunc status=none
touch -d 2020-01-01 {path('libwork.so')}
{path('program')}
"""


def session(name, *options):
    """How many procedures each run of the program shared with others of the session."""
    done = run([*profile(name + ".tally")[:-1], *options, "--", "sh", "-c", STEPS], name,
               timeout=120)
    expected = ["first", "first", "second", "first", "first", "third"]
    if done.stdout != b"".join(alone[version][0] for version in expected):
        complain(f"the session prints {done.stdout!r}")
    if done.stderr:
        complain(f"the session says {done.stderr.decode()}")
    numbers, programs = facts(name + ".tally", "number"), facts(name + ".tally", "program")
    known = facts(name + ".tally", "procedures_known")
    runs = sorted((int(numbers[i]), i) for i, program in programs.items()
                  if program == os.path.realpath(path("program")))
    if len(runs) != len(expected):
        complain(f"{len(runs)} runs of the program, expected {len(expected)}")
    for (number, run_id), version in zip(runs, expected):
        counts = library_counts(name + ".tally", number)
        if counts != alone[version][1]:
            complain(f"run {number} executed other code of the library than its {version} version: "
                     f"{sorted(counts.items())[:5]}, {sorted(alone[version][1].items())[:5]}")
    accepted(["check", path(name + ".tally")], "check", quiet=False)
    return [int(known[run_id]) for _, run_id in runs]


# The library itself is shared by the second run only, and once more when it had settled again.
shared = session("session", "--no-opt=found")
if not all(shared):
    complain(f"a run of the program shared nothing with the shell: {shared}")
if not shared[1] > shared[0] or not shared[2] < shared[1] or not shared[4] > shared[3]:
    complain(f"procedures shared by the runs of the program: {shared}")
if not shared[5] < shared[4]:
    complain(f"the library changed in place was taken for what it had been: {shared}")
# What earlier sessions have found is read back, but of the library that it was found in.
for again in ("later", "last"):
    subprocess.run(["cp", path("first.so"), path("libwork.so")], check=True)
    subprocess.run(["touch", "-d", "2020-01-01", path("libwork.so")], check=True)
    time.sleep(2.5)
    session(again)
finish()
