#!/usr/bin/env python3
"""Procedures that an earlier run has found are read back instead of found again, and change no
count: with the same input and with other, in threads and in children, whatever became of the file
that they are in, and not where the program is another one by now, of the same build-id."""
import os
import pathlib
import shutil
import subprocess

import taught
from refusal import TALLY, complain, finish, path

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline))
static jmp_buf out;
static __thread long sum;
typedef void (*function)(int);
NOINLINE static void up(int i) { sum += i; }
NOINLINE static void down(int i) { sum -= i; }
static const function volatile both[] = {up, down};
NOINLINE static void leap(int i) { if (i > 1000) longjmp(out, i); sum ^= 1; }
/* Each way leaves by something else: a call, a call through a pointer, a system call, a tail call,
   a jump through a table, a `longjmp`. */
NOINLINE static int ways(int way, int i) {
  if (way & 1) up(i);
  if (way & 2) both[i & 1](i);
  if (way & 4) sum += syscall(SYS_getppid) > 0;
  if (way & 8) sum += strlen(getenv("PATH")) > 0;
  if (way & 16) leap(i + 999);
  switch (way % 7) {
    case 0: sum = sum * 3 + STEP; break;
    case 1: sum = sum * 5; break;
    case 2: sum ^= 9; break;
    case 3: EXTRA break;
    case 4: sum += 77; break;
    default: sum -= 2;
  }
  if (way & 32) return ways(way & 15, i + 1);
  return (int)sum;
}
NOINLINE static void work(int way) {
  for (volatile int i = 0; i < 500; i++) {
    if (setjmp(out) == 0) ways(way, i % 4); else sum++;
  }
}
static void* thread(void* way) {
  for (int i = 0; i < 500; i++) ways(*(int*)way & 47, i % 4);
  return (void*)sum;
}
int main(int argc, char** argv) {
  int way = argc > 1 ? atoi(argv[1]) : 0;
  const char* how = argc > 2 ? argv[2] : "";
  work(way);
  if (strcmp(how, "threads") == 0) {
    pthread_t threads[3];
    void* result;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, &way);
    for (int i = 0; i < 3; i++) { pthread_join(threads[i], &result); sum += (long)result; }
  }
  if (strcmp(how, "fork") == 0 || strcmp(how, "exec") == 0) {
    fflush(stdout);
    if (fork() == 0) {
      if (how[0] == 'e') execl("/proc/self/exe", argv[0], argv[1], NULL);
      work(way ^ 3);
      printf("child %ld\n", sum);
      fflush(stdout);
      _exit(0);
    }
    wait(NULL);
  }
  printf("%ld\n", sum);
  return 0;
}
"""
PROGRAM = path("found")
FOLDER = pathlib.Path(path("cache"))
KINDS = ("instructions", "blocks", "edges")


def build(step, extra, target):
    """Programs of one build-id, which differ in one block."""
    with open(path("found.c"), "w", encoding="ascii") as f:
        f.write(SOURCE.replace("STEP", step).replace("EXTRA", extra))
    subprocess.run(["gcc", "-O1", "-pthread", "-Wl,--build-id=0xf0f0f0f0f0f0f0f0", path("found.c"),
                    "-o", target], check=True)


def profiled(*arguments, cache=FOLDER, options=()):
    return taught.Run(PROGRAM, arguments, cache, options, KINDS)


# Where control came to in a program that was there before may begin a block in this one.
def same(what, one, other, kinds=KINDS):
    if one.stdout != other.stdout:
        complain(f"{what}: printed {other.stdout!r} instead of {one.stdout!r}")
    for kind, left, right in zip(KINDS, one.counts, other.counts):
        if kind not in kinds:
            continue
        ran = [[row for row in rows if row[-1] != "0"] for rows in (left, right)]
        if ran[0] != ran[1] or not ran[0]:
            differ = sorted(set(ran[0]) ^ set(ran[1]))
            complain(f"{what}: other {kind}: {differ[:6]}")


def reread(what, run, least):
    print(f"{what}: {run.facts['procedures_reread']} of {run.facts['procedures_translated']}")
    if run.fact("procedures_reread") < least:
        complain(f"{what}: {run.facts['procedures_reread']} procedures were read back")


def not_reread(what, run):
    if run.fact("procedures_reread") != 0:
        complain(f"{what}: {run.facts['procedures_reread']} procedures were read back")


build("1", "sum -= 4;", PROGRAM)

# The third run reads what the second has left; so do all that follow.
WAYS = ("0", "1", "2", "4", "8", "16", "63", "47")
HOW = ("", "threads", "fork", "exec")
plain = {(way, how): profiled(way, how, cache="") for way in WAYS for how in HOW}
first, second, third = (profiled("0", "") for _ in range(3))
not_reread("the first run", first)
not_reread("the second run", second)
if {p.suffix for p in FOLDER.iterdir()} != {".recall", ".found"}:
    complain(f"two runs left {os.listdir(FOLDER)}")
reread("the third run", third, 20)
for name, run in (("first", first), ("second", second), ("third", third)):
    same(f"the {name} run", plain["0", ""], run)
if third.counts[0] and [r[:3] for r in third.counts[1]] != [r[:3] for r in second.counts[1]]:
    complain("the third run knows other blocks than the second")
deferred = third.fact("blocks_deferred")
if deferred == 0:
    complain("nothing was left out in the third run")

# Other ways are gone than those that were found: what was left out is made after all.
late = 0
for way in WAYS:
    for how in HOW:
        run = profiled(way, how)
        same(f"way {way} {how} after others", plain[way, how], run)
        late += run.fact("blocks_made_late")
reread("after other ways", profiled("63", ""), 20)
print(f"{late} blocks were made late")
if late == 0:
    complain("no block was made late")
for options in (["--no-opt=defer"], ["--no-opt=shared"], ["--no-opt=order"], ["--no-opt=renewal"],
                ["--stress-renewal"], ["--stress-index"], ["--stress-defer"], ["--no-opt=weights"],
                ["--placement=blocks"], ["--no-opt=low32"], ["--no-opt=flags"],
                ["--no-opt=packed"], ["--no-opt=sparse"], ["--no-opt=direct"], ["--no-opt=asks"],
                ["--no-opt=near"], ["--no-opt=fronts"], ["--no-opt=callers"], ["--no-opt=compact"],
                ["--no-opt=induction"]):
    run = profiled("63", "threads", options=options)
    same(f"{options}", plain["63", "threads"], run)
    if options[0] in ("--placement=blocks", "--no-opt=weights", "--no-opt=order",
                      "--no-opt=callers", "--stress-defer"):
        not_reread(f"{options}, which places otherwise", run)

# Switched off: nothing is read, and nothing left.
off = path("off")
for _ in range(3):
    run = profiled("0", "", cache=off, options=["--no-opt=found"])
    same("--no-opt=found", plain["0", ""], run)
    not_reread("--no-opt=found", run)
if {p.suffix for p in pathlib.Path(off).iterdir()} != {".recall"}:
    complain(f"--no-opt=found left {os.listdir(off)}")

# A file that is damaged, cut, or of another program is not believed, and replaced.
kept = next(FOLDER.glob("*.found"))
profiled("0", "")
whole = kept.read_bytes()
foreign = path("foreign")
for _ in range(2):
    subprocess.run([TALLY, "profile", "-o", path("foreign.tally"), "--", "/bin/ls", "/"],
                   check=True, env=dict(os.environ, TALLY_CACHE=foreign),
                   stdout=subprocess.DEVNULL)
other = next(pathlib.Path(foreign).glob("*.found")).read_bytes()
middle = len(whole) // 2
for name, content in (("cut", whole[:middle]), ("empty", b""), ("another program's", other),
                      ("flipped", whole[:middle] + bytes([whole[middle] ^ 1]) +
                       whole[middle + 1:])):
    kept.write_bytes(content)
    run = profiled("0", "")
    same(f"a file that is {name}", plain["0", ""], run)
    if name != "another program's":
        not_reread(f"a file that is {name}", run)
    if kept.read_bytes() == content:
        complain(f"a file that is {name} was not replaced")
    reread(f"the run after a file that was {name}", profiled("0", ""), 20)

# Another program of the same build-id: what is the same is read, what is not is found.
shutil.copy(PROGRAM, path("kept_program"))
for step, extra in (("2", "sum -= 4;"), ("1", "if (sum > 3) sum -= 4; else sum = sum * 7 - i;")):
    os.remove(PROGRAM)
    build(step, extra, PROGRAM)
    for way in ("0", "3", "63"):
        expected = profiled(way, "", cache="")
        same(f"changed in place, way {way}", expected, profiled(way, ""), KINDS[:1])
        same(f"changed in place, way {way} again", expected, profiled(way, ""), KINDS[:1])
os.remove(PROGRAM)
shutil.copy(path("kept_program"), PROGRAM)
for way in ("0", "63"):
    same(f"as it was at first, way {way}", plain[way, ""], profiled(way, ""), KINDS[:1])

# Many at once.
runs = [subprocess.Popen([TALLY, "profile", "-o", path(f"at_once{i}.tally"), "--", PROGRAM,
                          WAYS[i % 3], ""],
                         env=dict(os.environ, TALLY_CACHE=str(FOLDER)), stdout=subprocess.DEVNULL)
        for i in range(8)]
if any(one.wait() != 0 for one in runs):
    complain("eight at once failed")
if {p.suffix for p in FOLDER.iterdir()} != {".recall", ".found"}:
    complain(f"eight at once left {os.listdir(FOLDER)}")
same("after eight at once", plain["63", ""], profiled("63", ""), KINDS[:1])
finish()
