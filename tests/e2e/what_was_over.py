#!/usr/bin/env python3
"""What has run at a program's beginning only has no code any more once all code was made once more,
until it runs again: from where it was called before and from elsewhere, by pointers, from handlers
of signals, in a child and in threads, with calls in it that came to be open before.  What the
program counts itself, in memory that outlives it, is what the profile says."""
import processes
from own_counts import CountedRun
from refusal import compile_c, complain, finish

PROCEDURES = 24
SOURCE = r"""
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define APART __attribute__((noinline, noclone))
static volatile unsigned long* counts;
#define COUNT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": incq %0" \
                   : "+m"(counts[number]) : : "cc")
static volatile unsigned long sink;
#define ONCE(number) \
  APART static unsigned long once_##number(unsigned long n) { \
    COUNT(1##number); \
    for (unsigned long i = 0; i < n % 3; ++i) sink += i; \
    return n % 5 == 0 ? n : n * 2; \
  }
ONCES
static unsigned long (*const onces[])(unsigned long) = {NAMES};
APART static void call_each(unsigned long n) {
  COUNT(0);
  EACH
}
APART static void call_each_elsewhere(unsigned long n) {
  COUNT(1);
  EACH
}
APART static void call_by_pointers(unsigned long n) {
  COUNT(2);
  for (int i = 0; i < PROCEDURES; ++i) sink += onces[i](n + i);
}
APART static unsigned long busy(unsigned long n) {
  COUNT(3);
  return n * 2862933555777941757ul + 3037000493ul;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
APART static void work(double seconds) {
  COUNT(4);
  const double end = now() + seconds;
  while (now() < end) {
    for (int i = 0; i < 1000; ++i) sink = busy(sink);
  }
}
// Its call is open meanwhile.
APART static void around(double seconds, int depth) {
  COUNT(5);
  if (depth > 0) around(seconds, depth - 1);
  else work(seconds);
  COUNT(6);
}
static void on_signal(int number) {
  (void)number;
  COUNT(7);
  sink += once_00(3);
}
static void* in_thread(void* unused) {
  COUNT(8);
  call_each(1);
  call_by_pointers(1);
  return unused;
}
static void again(void) {
  call_each(3);
  call_each_elsewhere(4);
  call_by_pointers(5);
  raise(SIGUSR1);
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  signal(SIGUSR1, on_signal);
  const int threads = strcmp(argv[2], "threads") == 0;
  pthread_t thread;
  if (threads) {
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0) return 3;
    pthread_join(thread, NULL);
  }
  for (int i = 0; i < 5; ++i) call_each(i), call_by_pointers(i);
  raise(SIGUSR1);
  around(SECONDS, 6);
  if (strcmp(argv[2], "child") == 0) {
    const pid_t child = fork();
    if (child == 0) {
      again();
      _exit(0);
    }
    waitpid(child, NULL, 0);
  }
  if (threads) {
    if (pthread_create(&thread, NULL, in_thread, NULL) != 0) return 3;
    again();
    pthread_join(thread, NULL);
    return 0;
  }
  for (int i = 0; i < 3; ++i) again();
  around(SECONDS / 4, 2);
  again();
  return 0;
}
"""


def source():
    text = SOURCE.replace("ONCES", "".join(f"ONCE({i:02})\n" for i in range(PROCEDURES)))
    text = text.replace("NAMES", ", ".join(f"once_{i:02}" for i in range(PROCEDURES)))
    return text.replace("EACH", "".join(f"sink += once_{i:02}(n + {i});"
                                        for i in range(PROCEDURES)))


def check(program, mode, *options):
    run = CountedRun(program, mode, 512, *options, env=dict(processes.ENVIRONMENT, TALLY_CACHE=""))
    left_out = run.fact("procedures_left_out")
    print(f"{run.what}: {run.fact('compactions')} times, {left_out} procedures left out, "
          f"{run.fact('blocks_made_late')} blocks made late")
    if run.own[3] < 100000 or run.own[100] < 7:
        complain(f"{run.what}: the program has hardly run: {run.own[:10]}")
    return left_out


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    program = compile_c("over" + "".join((level, *flags)), source(), level, *flags, "-pthread",
                        f"-DPROCEDURES={PROCEDURES}", "-DSECONDS=1.5")
    # Beside other work it may come to that later than the program runs.
    tries = (check(program, "whole") for _ in range(3))
    if not any(left_out >= PROCEDURES // 2 for left_out in tries):
        complain(f"{level} {flags}: what was over keeps its code")
    check(program, "child")
    check(program, "threads")
    if check(program, "whole", "--no-opt=compact") != 0:
        complain(f"{level} {flags}: left out though that is switched off")
    for options in (("--stress-renewal",), ("--stress-renewal", "--stress-defer"),
                    ("--stress-renewal", "--no-opt=joins,through,low32")):
        for mode in ("whole", "child", "threads"):
            left_out = check(program, mode, *options)
            if mode == "whole" and left_out == 0:
                complain(f"{level} {flags} {options}: nothing was left out")
finish()
