#!/usr/bin/env python3
"""Loops that a register of the program's counts, in later runs, and in first ones where procedures
are translated again: no count is another for it, however a thread leaves the loop or comes to it.
Handlers go on in it, also with another register, leave it by longjmp and by their context, come to
its middle, fork, fail to become another program; programs end while threads are in it, and what
they had stored last says how often it ran."""
import itertools
import os
import pathlib
import re
import signal
import struct
import subprocess

import taught
from refusal import TALLY, accepted, compile_c, complain, finish, path
from taught import same

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#define NOINLINE __attribute__((noinline, noclone))
#define PAGE 4096L
extern char fill_middle[], fill_end[];
static sigjmp_buf out;
static char* pages;
static const char* how = "";
static volatile long sum, turns;
/* By one, and where the flags that the loop is left with are looked at. */
NOINLINE static long scan(const char* p, char wanted) {
  const char* at = p;
  long below;
  __asm__ volatile("1: movzbl (%0), %%eax\n inc %0\n cmp %b2, %%al\n jne 1b\n setz %b1\n"
                   "movzbl %b1, %k1"
                   : "+&S"(at), "=&d"(below) : "b"(wanted) : "rax", "cc", "memory");
  return at - p + below;
}
/* Downwards by eight, by lea, with all flags live in it and behind it. */
NOINLINE static long down(long n) {
  long at = n * 8, carries = 0;
  __asm__ volatile("xor %%eax, %%eax\n 1: adc $0, %1\n lea -8(%0), %0\n cmp %0, %2\n jl 1b\n"
                   "adc $0, %1" : "+r"(at), "+r"(carries) : "r"(0L) : "rax", "cc");
  return at * 2 + carries;
}
/* By 24, in a loop within a loop. */
NOINLINE static long inner(long n) {
  long total = 0;
  for (long i = 0; i < n; i++) {
    long at = -24 * i - 240;
    __asm__ volatile("1: add $1, %1\n add $24, %0\n cmp $-24, %0\n jl 1b"
                     : "+r"(at), "+r"(total) : : "cc");
    total += at;
  }
  return total;
}
/* None of these has a register that tells: of 32 bits, moved twice, also in part, by what is not
   constant, and rcx. */
NOINLINE static long none(long n) {
  long a = 0, b = 0, c = n, d = 1;
  __asm__ volatile("1: inc %k0\n cmp %k1, %k0\n jne 1b" : "+r"(a) : "r"(n) : "cc");
  __asm__ volatile("1: inc %0\n inc %0\n cmp %1, %0\n jl 1b" : "+r"(b) : "r"(n) : "cc");
  __asm__ volatile("1: dec %0\n jnz 1b" : "+c"(c) : : "cc");
  __asm__ volatile("1: inc %%rax\n mov $0, %%ah\n add %1, %0\n cmp %2, %0\n jl 1b"
                   : "+r"(a), "+r"(d) : "r"(n * 3) : "rax", "cc");
  return a + b + c;
}
NOINLINE static void fill(char* from, char* to) {
  __asm__ volatile("1: movb $7, (%0)\n fill_middle: inc %0\n cmp %1, %0\n jb 1b\n fill_end: nop"
                   : "+b"(from) : "r"(to) : "cc", "memory");
}
NOINLINE static void spin(volatile long* last, long end) {
  long at = 0;
  __asm__ volatile("1: inc %0\n spin_store: mov %0, (%1)\n cmp %2, %0\n jne 1b"
                   : "+&r"(at) : "r"(last), "r"(end) : "cc", "memory");
}
static void allow(char* page) { mprotect(page, PAGE, PROT_READ | PROT_WRITE); }
static void handler(int number, siginfo_t* info, void* opaque) {
  ucontext_t* context = opaque;
  greg_t* regs = context->uc_mcontext.gregs;
  char* page = (char*)((long)info->si_addr & -PAGE);
  (void)number;
  turns += scan("abcdefgh", 'h');
  if (strcmp(how, "out") == 0) siglongjmp(out, 1);
  if (strcmp(how, "over") == 0) { regs[REG_RIP] = (long)fill_end; return; }
  if (strcmp(how, "middle") == 0) { regs[REG_RIP] = (long)fill_middle; return; }
  if (strcmp(how, "page") == 0) { regs[REG_RBX] = (long)page + PAGE; return; }
  if (strcmp(how, "back") == 0) { regs[REG_RBX] -= 100; allow(page); return; }
  if (strcmp(how, "exit") == 0) _exit(3);
  if (strcmp(how, "die") == 0) { signal(SIGSEGV, SIG_DFL); return; }
  if (strcmp(how, "execs") == 0) execl("/nowhere/at/all", "x", NULL);
  if (strcmp(how, "becomes") == 0) execl("/bin/true", "true", NULL);
  if (strcmp(how, "vforks") == 0) { if (vfork() == 0) _exit(4); wait(NULL); }
  if (strcmp(how, "forks") == 0 && fork() != 0) wait(NULL);
  allow(page);
}
NOINLINE static void work(long n) {
  for (long i = 0; i < n; i++) {
    sum += scan("how long is that?", '?') + down(i + 9) + inner(i & 15) + none(i + 7);
    fill(pages, pages + 100 + i);
    long last;
    spin(&last, 50 + i);
    sum += last;
  }
}
static void* endless(void* last) { work(3); spin(last, 0); return NULL; }
static void tick(int number) { (void)number; turns += scan("tick", 'k'); }
int main(int argc, char** argv) {
  how = argc > 1 ? argv[1] : "";
  pages = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
  sigaction(SIGSEGV, &action, NULL);
  work(200);
  if (argc > 2) {
    int file = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, PAGE) != 0) return 1;
    volatile long* last = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t other;
    signal(SIGALRM, tick);
    pthread_create(&other, NULL, endless, (void*)last);
    while (*last < 100000) usleep(1000);
    if (strcmp(how, "ticks") == 0) {
      for (int i = 0; i < 50; i++) { pthread_kill(other, SIGALRM); usleep(1000); }
    }
    if (strcmp(how, "killed") == 0) kill(getpid(), SIGKILL);
    if (strcmp(how, "ended") == 0) kill(getpid(), SIGTERM);
    if (strcmp(how, "replaced") == 0) execl("/bin/true", "true", NULL);
    return 0;
  }
  if (strcmp(how, "") != 0) {
    for (int i = 1; i < 8; i += 2) mprotect(pages + i * PAGE, PAGE, PROT_NONE);
    if (sigsetjmp(out, 1) == 0) fill(pages, pages + 8 * PAGE);
    work(3);
  }
  printf("%s %ld %ld\n", strcmp(how, "forks") == 0 ? "" : how, sum, turns);
  return 0;
}
"""
os.environ["TALLY_CHECK"] = "1"  # also of a single thread the total is found by its counters
FOLDER = pathlib.Path(path("cache"))
PROGRAM = compile_c("loops", SOURCE, "-O2", "-pthread")
HANDLED = ("retry", "out", "over", "middle", "page", "back", "execs", "vforks", "forks")


# In a first run of some milliseconds nothing else makes loops be counted so.
STRESS = "--stress-renewal"


def run(how="", cache=FOLDER, options=()):
    return taught.Run(PROGRAM, [how] if how else [], cache, options,
                      ("instructions", "blocks", "edges"))


def loops_of(what, one):
    if one.fact("loops_by_register") < 4:
        complain(f"{what}: {one.facts['loops_by_register']} loops are counted by a register")


plain = {how: run(how, "", ["--no-opt=renewal"]) for how in ("", *HANDLED)}
for how, one in plain.items():
    if one.fact("loops_by_register") != 0:
        complain(f"{how}: loops are counted by registers without weights")
    stressed = run(how, "", [STRESS])
    same(f"{how}, first run", one, stressed)
    loops_of(f"{how}, first run", stressed)
first = run()
second = run()
same("the first run", plain[""], first)
same("the second run", plain[""], second)
loops_of("the second run", second)
without = run(options=["--no-opt=induction"])
same("without", second, without)
print(f"{second.facts['loops_by_register']} loops; increments: {without.fact('counter_increments')}"
      f" without, {second.fact('counter_increments')} with")
if second.fact("counter_increments") > 0.8 * without.fact("counter_increments"):
    complain("no increments are spared")
for turn in range(2):
    for how in HANDLED:
        again = run(how)
        same(f"{how}, turn {turn}", plain[how], again)
        loops_of(f"{how}, turn {turn}", again)
OPTIONS = ("--no-opt=found", "--no-opt=defer", "--no-opt=flags", "--no-opt=order",
           "--no-opt=callers", "--no-opt=low32", "--no-opt=asks", "--stress-defer",
           STRESS, "--stress-index", "--no-opt=near", "--no-opt=shared")
for option, how in zip(OPTIONS, itertools.cycle(("middle", "back", "forks", "vforks", "over"))):
    again = run(how, options=[option])
    same(f"{how} {option}", plain[how], again)
    loops_of(f"{how} {option}", again)
for options in (["--no-opt=weights,renewal"], ["--no-opt=recall,renewal"], ["--placement=blocks"],
                ["--no-opt=recall,induction", STRESS]):
    again = run("back", options=options)
    same(f"back {options}", plain["back"], again)
    if again.fact("loops_by_register") != 0:
        complain(f"{options}: loops are counted by registers")


# ---- programs that end in a loop -----------------------------------------------------------------

def profiled(arguments, cache, *options):
    name = path("ended.tally")
    done = subprocess.run([TALLY, "profile", "-o", name, *options, "--", PROGRAM, *arguments],
                          capture_output=True, check=False,
                          env=dict(os.environ, TALLY_CACHE=str(cache)))
    instructions = {}
    for line in accepted(["dump", "instructions", name, "--run=1"],
                         "dump").stdout.decode().splitlines()[1:]:
        module, _, address, count = line.rsplit(",", 3)
        if module == PROGRAM:
            instructions[int(address, 16)] = int(count)
    report = accepted(["report", name, "--run=1", "--format=json"], "report").stdout.decode()
    if '"balanced": true' not in report:
        complain(f"{arguments}: not balanced")
    return done.returncode, instructions


SYMBOLS = {name: int(address, 16) for address, _, name in re.findall(
    r"^([0-9a-f]+) (\w) (\w+)$", subprocess.run(["nm", PROGRAM], capture_output=True, check=True,
                                                text=True).stdout, re.M)}
for how in ("exit", "die", "becomes"):
    wanted = profiled([how], "", "--no-opt=renewal")
    for turn in range(3):
        got = profiled([how], "", STRESS) if turn == 2 else profiled([how], FOLDER)
        if got != wanted:
            complain(f"{how}, turn {turn}: {got[0]}, not {wanted[0]}; "
                     f"{sorted(set(got[1].items()) ^ set(wanted[1].items()))[:6]}")
STORES_BEFORE = sum(50 + i for i in range(200)) + sum(50 + i for i in range(3))
LAST = pathlib.Path(path("last"))
for how, status in {"done": 0, "killed": -signal.SIGKILL, "ended": -signal.SIGTERM, "replaced": 0,
                    "ticks": 0}.items():
    for turn in range(6):
        LAST.unlink(missing_ok=True)
        known = (FOLDER,) if turn < 4 else ("", STRESS)
        got, instructions = profiled([how, str(LAST)], *known)
        stored, = struct.unpack("q", LAST.read_bytes()[:8])
        counted = instructions[SYMBOLS["spin_store"]] - STORES_BEFORE
        if got != status or counted != stored:
            complain(f"{how}, turn {turn}: {got}; the loop stored {stored} times, and was counted "
                     f"{counted} times")
finish()
