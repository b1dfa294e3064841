#!/usr/bin/env python3
"""Indirect branches that go where others have gone before are noted by the thread itself, and read
by the monitor later: when the thread asks for something, when its notes are full, when it ends.
What the program counts itself, in memory that outlives it, is what the profile says, call by call
and target by target, however its threads end; and the profile is the same without notes."""
import collections

from own_counts import KILL_CHILDREN, CountedRun, symbols
from refusal import compile_c, complain, finish

SITES, TAILS, TARGETS, LABELS = 24, 8, 50, 12
WRITTEN = 48  # the others are in C
KINDS = TARGETS + LABELS
MODES = ("plain", "threads", "leave", "exec", "fork", "alarm", "jump", "kill")
KILLED = 40


def source():
    """Sites that call through a table, some as their last act; an interpreter's dispatch."""
    text = [r"""
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static struct { volatile unsigned long kinds[KINDS], pairs[SITES + TAILS][TARGETS]; } *own;
#define COUNT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": lock incq %0" \
                   : "+m"(own->kinds[number]) : : "cc")
typedef int (*target)(int);
static target targets[TARGETS];
""", KILL_CHILDREN]
    text += [f"APART static int t{t}(int n) {{ COUNT({t}); return n * {t + 3} + 1; }}\n"
             for t in range(WRITTEN)]
    # A jump to what lies next has no code of its own.
    text += [f"""int t{t}(int);
__asm__(".text\\n.type t{t}, @function\\n.globl t{t}\\nt{t}: jmp 1f\\n"
        "1: lea 1(%rdi), %eax\\n ret\\n.size t{t}, . - t{t}\\n");
""" for t in range(WRITTEN, TARGETS)]
    text += [f"static target targets[TARGETS] = {{{','.join(f't{t}' for t in range(TARGETS))}}};\n"]
    for site in range(SITES + TAILS):
        # Nothing behind the call, and it is a jump.
        behind = " + 1" if site < SITES else ""
        text.append(f"""APART int site_{site}(int n, int to) {{
  __asm__ volatile("lock incq %0" : "+m"(own->pairs[{site}][to]) : : "cc");
  return targets[to](n){behind};
}}
""")
    every = ",".join(f"site_{site}" for site in range(SITES + TAILS))
    text.append(f"static int (*sites[])(int, int) = {{{every}}};\n")
    labels = ",".join(f"&&l{label}" for label in range(LABELS))
    text.append(f"""APART int interpret(unsigned n, int a) {{
  static void* const labels[] = {{{labels}, &&end}};
#define NEXT n = n * 1103515245 + 12345; goto *labels[(n >> 16) % (LABELS + 1)]
  NEXT;
""")
    text += [f"l{label}: COUNT({TARGETS + label}); a = a * {label + 2} + 1; NEXT;\n"
             for label in range(LABELS)]
    text.append(r"""end: return a;
}
static __thread unsigned state = 1;
static volatile int sum;
static unsigned next(void) {
  state = state * 1664525 + 1013904223;
  return state >> 8;
}
static int step(void) {
  const unsigned site = next() % (SITES + TAILS);
  // Some targets often, some hardly ever.
  const unsigned to = next() % (1 + next() % TARGETS);
  return sites[site](7, (int)to) + interpret(next(), 5);
}
static void steps(int count) {
  for (int i = 0; i < count; ++i) sum += step();
}
static jmp_buf out;
static int leap(int n) {
  if (n > 0) longjmp(out, 1);
  return n;
}
APART int call(target to) { return to(1) + 1; }
static void on_alarm(int number) { sum += step() + number; }
static pthread_barrier_t barrier;
static void* thread(void* seed) {
  state = (unsigned)(long)seed;
  pthread_barrier_wait(&barrier);
  steps(900);
  return NULL;
}
static void* endless(void* seed) {
  state = (unsigned)(long)seed;
  for (;;) steps(1);
}
static void begin(void* (*run)(void*), int join) {
  pthread_t threads[4];
  for (long i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, run, (void*)(i + 5));
  for (int i = 0; i < 4 && join; ++i) pthread_join(threads[i], NULL);
}
static const char* mode_of(int child) { return child % 2 ? "endless" : "leave"; }
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  own = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (own == MAP_FAILED || argc != 3) return 2;
#define IS(name) (strcmp(argv[2], name) == 0)
  pthread_barrier_init(&barrier, NULL, 4);
  if (IS("kill")) {
    kill_children(argv, mode_of);
    return 0;
  }
  if (IS("endless") || IS("leave")) {
    if (write(1, "!", 1) != 1) return 3;
    begin(endless, 0);
    if (IS("endless")) endless((void*)77);
    usleep(30000);
    steps(10);
    _exit(0);
  }
  if (IS("alarm")) {
    const struct itimerval often = {{0, 700}, {0, 700}};
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &often, NULL);
  }
  steps(3000);
  if (IS("threads")) begin(thread, 1);
  if (IS("jump")) {
    for (int i = 0; i < 300; ++i) {
      if (setjmp(out) == 0) sum += call(i % 3 ? leap : t7);
      steps(1);
    }
  }
  if (IS("fork")) {
    if (fork() == 0) {
      steps(900);
      _exit(0);
    }
    steps(5);
    wait(NULL);
  }
  if (IS("exec")) execl(argv[0], argv[0], argv[1], "plain", NULL);
  return 0;
}
""")
    return "".join(text)


class Run(CountedRun):
    def __init__(self, program, mode, *options):
        super().__init__(program, mode, KINDS + (SITES + TAILS) * TARGETS, *options)
        # Who is killed between the two has counted the pair, and has not called.
        if mode not in ("kill", "leave"):
            self.check_pairs(program)
        self.noted = self.fact("visits_noted")
        print(f"{self.what}: {self.noted} visits noted, {self.fact('misses_indirect')} asked for")

    def check_pairs(self, program):
        there = symbols(program)
        sites = [there[f"site_{site}"] for site in range(SITES + TAILS)]
        starts = {there[f"t{target}"][0]: target for target in range(TARGETS)}
        led = collections.Counter()
        for row in self.edges:
            begin, to = int(row["from_block"], 16), int(row["to_block"], 16)
            site = [s for s, (at, size) in enumerate(sites) if at <= begin < at + size]
            if row["kind"] in ("indirect_call", "indirect_jump") and site and to in starts:
                led[site[0], starts[to]] += int(row["count"])
        for site in range(SITES + TAILS):
            for target in range(TARGETS):
                was = self.own[KINDS + site * TARGETS + target]
                if led[site, target] != was:
                    complain(f"{self.what}: site {site} led to {target} {led[site, target]} times "
                             f"by the profile, {was} by its own count")


SIZES = [f"-DKINDS={KINDS}", f"-DSITES={SITES}", f"-DTAILS={TAILS}", f"-DTARGETS={TARGETS}",
         f"-DLABELS={LABELS}", f"-DKILLED={KILLED}"]
# The last one is large enough for calls and returns that pair up.
for flags in (["-no-pie"], ["-static"], ["-Wl,-z,now", "-DLARGE"]):
    large = '__asm__(".text\\n.space 4 << 20");\n' if "-DLARGE" in flags else ""
    program = compile_c("notes" + "".join(flags).replace(",", ""), source() + large, "-O2",
                        "-fno-gcse", "-fno-crossjumping", "-fcf-protection=none", "-pthread",
                        *SIZES, *flags)
    for mode in MODES:
        noted = Run(program, mode, "--no-opt=recall")
        wanted = 1 if mode == "kill" else 300  # how far they come depends on the moment
        if noted.noted < wanted:
            complain(f"{noted.what}: only {noted.noted} visits were noted")
        if mode not in ("plain", "fork", "exec", "jump"):
            continue  # what runs depends on the moment
        asked = Run(program, mode, "--no-opt=recall,notes")
        if asked.noted != 0:
            complain(f"{asked.what}: {asked.noted} visits were noted though that is switched off")
        if (noted.rows, noted.edges) != (asked.rows, asked.edges):
            complain(f"{mode}: other counts with notes")
finish()
