#!/usr/bin/env python3
"""What never ran in the last runs of a program, or is unlikely to in the first, has no code until
control gets there.
A program is taught with the plain way through everything, then goes all the others: branches,
tables, computed jumps, callbacks, returns by longjmp, handlers, threads that come at once, a child
after fork, children that are killed on the way.  What it counts itself, in memory that outlives it,
is what the profile says of the instructions that did, and the whole profile is the same without."""
import os
import shutil

from own_counts import KILL_CHILDREN, CountedRun
from refusal import compile_c, complain, finish, path

KINDS = ("PLAIN", "ROUND", "BRANCH", "DEEP", "CASE0", "CASE1", "CASE2", "CASE3", "LABEL0", "LABEL1",
         "LABEL2", "CALLBACK", "OTHER", "JUMPED", "HANDLED", "THREAD", "TOGETHER", "CHILD", "LATE")
MODES = ("branch", "switch", "label", "callback", "jump", "signal", "threads", "fork", "kill")
KILLED = 40
SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PLAIN, ROUND, BRANCH, DEEP, CASE0, CASE1, CASE2, CASE3, LABEL0, LABEL1, LABEL2, CALLBACK,
       OTHER, JUMPED, HANDLED, THREAD, TOGETHER, CHILD, LATE, KINDS };
static volatile unsigned long* counts;
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": lock incq %0" \
                   : "+m"(counts[kind]) : : "cc")
#define APART __attribute__((noinline, noclone))
static volatile int rare, choice;
static const char* mode = "plain";
static int quiet;
static int is(const char* name) { return strcmp(mode, name) == 0; }
APART static int branch(int n) {
  int sum = n;
  for (int i = 0; i < n; ++i) {
    COUNT(PLAIN);
    if (rare) {
      COUNT(BRANCH);
      sum ^= branch(n / 2);
      if (n > 3) { COUNT(DEEP); sum += 3; }
    }
    sum = sum * 5 + i;
  }
  return sum;
}
APART static int choose(int n) {
  switch (n) {
    case 0: COUNT(CASE0); return choice * 3;
    case 1: COUNT(CASE1); return choice + 7;
    case 2: COUNT(CASE2); return choice ^ 77;
    case 3: COUNT(CASE3); return branch(choice & 7);
    case 4: return choice % 5;
    case 5: return choice % 9 - choice;
    default: return -choice;
  }
}
APART static int interpret(const char* code) {
  static void* const labels[] = {&&add, &&twice, &&negate, &&end};
  int a = choice;
  goto *labels[code[0] - '0'];
add: COUNT(LABEL0); a += 3; goto *labels[*++code - '0'];
twice: COUNT(LABEL1); a *= 2; goto *labels[*++code - '0'];
negate: COUNT(LABEL2); a = -a; goto *labels[*++code - '0'];
end: return a;
}
static int compare(const void* a, const void* b) {
  COUNT(CALLBACK);
  const int x = *(const int*)a, y = *(const int*)b;
  if (rare) { COUNT(OTHER); return x < y ? 1 : -1; }
  return x < y ? -1 : x > y;
}
APART static int sort(void) {
  int numbers[60];
  for (int i = 0; i < 60; ++i) numbers[i] = i * 7919 % 61;
  qsort(numbers, 60, sizeof *numbers, compare);
  return numbers[7];
}
static jmp_buf out;
APART static void leave(int n) {
  if (n > 0) leave(n - 1);
  if (rare) longjmp(out, 1);
}
APART static int jump(void) {
  if (setjmp(out) == 0) {
    leave(5);
    return 1;
  }
  COUNT(JUMPED);
  return branch(2);
}
static void handle(int signal) {
  if (signal == SIGUSR2) return;
  COUNT(HANDLED);
  rare = 1;
  choice += branch(2);
  rare = 0;
}
static pthread_barrier_t barrier;
static void* thread(void* number) {
  COUNT(THREAD);
  pthread_barrier_wait(&barrier);
  if (rare) {
    COUNT(TOGETHER);
    return (void*)(long)(branch(6) ^ choose((int)(long)number));
  }
  return number;
}
APART static void begin_threads(void) {
  pthread_t threads[4];
  pthread_barrier_init(&barrier, NULL, 4);
  for (long i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, thread, (void*)i);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
}
APART static void round_of(int number) {
  COUNT(ROUND);
  choice = number;
  if (is("branch")) rare = number % 3 == 0;
  choice += branch(9);
  rare = 0;
  choice += choose(is("switch") ? number % 4 : 4 + number % 2);
  choice += interpret(is("label") && number % 2 ? "0212013" : "003");
  rare = is("callback");
  choice += sort();
  rare = is("jump");
  choice += jump();
  rare = 0;
  if (number % 7 == 1 && !quiet) raise(is("signal") ? SIGUSR1 : SIGUSR2);
}
APART static void endless(void) {
  quiet = 1;
  for (int number = 0;; ++number) {
    if (number == 40) { COUNT(LATE); mode = "branch"; }
    if (number == 44) mode = "switch";
    if (number == 48) mode = "label";
    if (number == 52) mode = "callback";
    round_of(number);
  }
}
static const char* mode_of(int child) { return "endless"; }
#define HAS_COME_FAR(i) ((i) % 2 == 0 || counts[LATE] > (i) / 2ul)  // every other one
KILL_CHILDREN
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  mode = argv[2];
  signal(SIGUSR1, handle);
  signal(SIGUSR2, handle);
  if (is("endless")) {
    if (write(1, "!", 1) == 1) endless();
  }
  if (is("kill")) {
    kill_children(argv, mode_of);
    return 0;
  }
  for (int number = 0; number < 2000; ++number) round_of(number);
  rare = is("threads");
  if (is("threads") || is("taught")) begin_threads();
  rare = 0;
  if (is("fork")) {
    if (fork() == 0) {
      COUNT(CHILD);
      rare = 1;
      const int sum = branch(5) ^ choose(2);
      rare = 0;
      _exit(sum == 12345);
    }
    wait(NULL);
  }
  printf("%d\n", choice);
  return 0;
}
""".replace("KILL_CHILDREN", KILL_CHILDREN)


class Run(CountedRun):
    def __init__(self, program, mode, cache, *options):
        super().__init__(program, mode, len(KINDS), *options, number_of=KINDS.index,
                         env=dict(os.environ, TALLY_CACHE=cache))
        self.deferred, self.late = self.fact("blocks_deferred"), self.fact("blocks_made_late")
        print(f"{self.what}: {self.deferred} blocks left out, {self.late} made late")


def copy_of(cache):
    """What is on record must not change from mode to mode."""
    result = path("copied")
    shutil.rmtree(result, ignore_errors=True)
    shutil.copytree(cache, result)
    return result


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    name = "deferred" + "".join((level, *flags))
    # Two threads that call a function for the first time at once may both look it up.
    program = compile_c(name, SOURCE, level, *flags, f"-DKILLED={KILLED}", "-pthread",
                        "-Wl,-z,now")
    taught = path(name + "-cache")
    # The first run leaves out what is unlikely by the rules of thumb, the others what never ran.
    guessed = Run(program, "taught", taught)
    if guessed.deferred < 100 or guessed.late == 0 or guessed.late > guessed.deferred / 2:
        complain(f"{name}: {guessed.deferred} left out, {guessed.late} made late")
    for mode in ("taught", "plain"):
        again = Run(program, mode, taught if mode == "taught" else copy_of(taught))
        if again.deferred < 100 or again.late > again.deferred / 10:
            complain(f"{name}: {again.deferred} left out, {again.late} made late")
    for mode in MODES:
        deferred = Run(program, mode, copy_of(taught))
        first = Run(program, mode, "")
        for run in (deferred, first):
            if run.late == 0:
                complain(f"{run.what}: control never came to what was left out")
            if mode == "kill" and run.own[KINDS.index("LATE")] < 5:
                complain(f"{run.what}: all children died early: {run.own}")
        if mode == "kill":
            continue
        whole = Run(program, mode, copy_of(taught), "--no-opt=defer")
        if whole.deferred != 0 or whole.late != 0:
            complain(f"{whole.what}: blocks were left out though that is switched off")
        for run in (deferred, first):
            # In a static program the C library's code, which looks at addresses, is its own.
            if "-static" not in flags and (run.rows, run.edges) != (whole.rows, whole.edges):
                complain(f"{run.what}: other counts without what was left out")
            if run.stdout != whole.stdout:
                complain(f"{run.what}: {run.stdout} and {whole.stdout}")
finish()
