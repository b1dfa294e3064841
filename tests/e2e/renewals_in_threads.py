#!/usr/bin/env python3
"""Hot procedures are translated again while several threads run, all of which stand still for it,
and nothing is lost: what the program counts itself, in memory that outlives it, is what the profile
says of the instructions that did.  The threads are in recursion that is left by longjmp, in an
interpreter that never returns, in callbacks from the C library and in handlers; they wait for each
other, for input that never comes and for time to pass, and write more than a pipe holds, none of
which is ever cut short; others come and go, and so do processes.  The program runs to its end, ends
while all are busy, and is killed from outside."""
from own_counts import KILL_CHILDREN, CountedRun
from refusal import compile_c, complain, finish

KINDS = ("DEEP", "ODD", "BOTTOM", "JUMPED", "ADD", "SUB", "XOR", "ROTATE", "LESS", "MORE", "AGAIN",
         "COMPARED", "TICKED", "ROUND", "BRIEF", "TAKEN", "SPAWNED")
MODES = ("whole", "timer", "spawn", "exit", "kill")
ROUNDS, WORKERS, KILLED = 1500, 3, 10
SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
enum { DEEP, ODD, BOTTOM, JUMPED, ADD, SUB, XOR, ROTATE, LESS, MORE, AGAIN, COMPARED, TICKED, ROUND,
       BRIEF, TAKEN, SPAWNED, KINDS };
static volatile unsigned long* counts;
#define COUNT(kind) \
  __asm__ volatile(".globl at_" #kind "\nat_" #kind ": lock incq %0" : "+m"(counts[kind]) : : "cc")
#define APART __attribute__((noinline, noclone))
static __thread jmp_buf out;
static __thread unsigned long state;
static int endless;
static unsigned long next(void) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}
APART static unsigned long deep(int n, int jump) {
  COUNT(DEEP);
  if (n == 0) {
    COUNT(BOTTOM);
    if (jump) longjmp(out, 1);
    return next();
  }
  unsigned long below = deep(n - 1, jump);
  if (below & 1) COUNT(ODD);
  return below >> 1;
}
APART static unsigned long interpret(unsigned long steps) {
  unsigned char code[256];
  unsigned long a = 0, b = next();
  for (int i = 0; i < 256; ++i) code[i] = (unsigned char)(next() % 7);
  unsigned char pc = 0;
  while (steps-- > 0) {
    switch (code[pc++]) {
      case 0: COUNT(ADD); a += b; break;
      case 1: COUNT(SUB); a -= 3; break;
      case 2: COUNT(XOR); b ^= a; break;
      case 3: COUNT(ROTATE); b = b << 9 | b >> 55; break;
      case 4: COUNT(LESS); if (a < b) pc += 3; break;
      case 5: COUNT(MORE); if (b & 16) a >>= 1; break;
      default: COUNT(AGAIN); if (steps & 1) pc -= 2; break;
    }
  }
  return a ^ b;
}
static int compare(const void* a, const void* b) {
  COUNT(COMPARED);
  const unsigned long x = *(const unsigned long*)a, y = *(const unsigned long*)b;
  return x < y ? -1 : x > y;
}
static void tick(int signal) {
  (void)signal;
  COUNT(TICKED);
}
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static unsigned long queued;
static int closed;
APART static void work(int round, int jumps) {
  unsigned long numbers[100];
  COUNT(ROUND);
  if (setjmp(out) == 0) {
    for (int i = 0; i < 20; ++i) deep(i + 5, jumps && i == 19 && round % 3 == 0);
  } else {
    COUNT(JUMPED);
  }
  for (int i = 0; i < 100; ++i) numbers[i] = next();
  qsort(numbers, 100, sizeof *numbers, compare);
  interpret(3000 + numbers[50] % 1000);
  pthread_mutex_lock(&lock);
  ++queued;
  pthread_cond_signal(&filled);
  pthread_mutex_unlock(&lock);
}
static void* worker(void* seed) {
  state = (unsigned long)seed;
  for (int round = 0; endless || round < ROUNDS; ++round) work(round, 1);
  return NULL;
}
static void* taker(void* unused) {
  pthread_mutex_lock(&lock);
  for (;;) {
    while (queued == 0 && !closed) pthread_cond_wait(&filled, &lock);
    if (queued == 0) break;
    --queued;
    COUNT(TAKEN);
  }
  pthread_mutex_unlock(&lock);
  return unused;
}
static void* brief(void* unused) {
  COUNT(BRIEF);
  return unused;
}
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static void* waiter(void* unused) {
  const int epoll = epoll_create1(0);
  struct epoll_event event;
  for (int i = 0; i < 3; ++i) {
    const double begun = now();
    if (epoll_wait(epoll, &event, 1, 30) != 0) _exit(20);
    if (now() - begun < 0.03) _exit(21);
    if (now() - begun > 5) _exit(22);
  }
  const struct timespec pause = {0, 50000000};
  if (nanosleep(&pause, NULL) != 0) _exit(23);
  return unused;
}
static void* waiter_for_ever(void* unused) {
  const int epoll = epoll_create1(0);
  struct epoll_event event;
  epoll_wait(epoll, &event, 1, -1);
  _exit(24);
  return unused;
}
static void* reader(void* from) {
  char byte;
  if (read(*(int*)from, &byte, 1) != 0) _exit(25);
  return NULL;
}
static void* writer(void* to) {
  static char much[300000];
  for (int i = 0; i < 8; ++i) {
    if (write(*(int*)to, much, sizeof much) != sizeof much) _exit(26);
  }
  return NULL;
}
static void* slow_reader(void* from) {
  char some[20000];
  long all = 0;
  for (long got; all < 8 * 300000l; all += got) {
    if ((got = read(*(int*)from, some, sizeof some)) <= 0) _exit(27);
    usleep(500);
  }
  return NULL;
}
static pthread_t begin(void* (*what)(void*), void* argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, what, argument) != 0) exit(3);
  return thread;
}
static void begin_timer(void) {
  struct itimerval every = {{0, 3000}, {0, 3000}};
  struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigset_t set;
  sigaction(SIGALRM, &action, NULL);
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &set, NULL);  // those made from here on do not get it
}
static void spawn(char** argv) {
  pid_t child;
  char* arguments[] = {argv[0], argv[1], "nothing", NULL};
  if (posix_spawn(&child, argv[0], NULL, NULL, arguments, NULL) != 0) exit(7);
  waitpid(child, NULL, 0);
  if ((child = fork()) == 0) {
    if (setjmp(out) == 0) deep(20, 1);
    _exit(0);
  }
  waitpid(child, NULL, 0);
}
#ifdef KILL
KILL_CHILDREN
static const char* endlessly(int i) {
  (void)i;
  return "endless";
}
#endif
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  const char* mode = argv[2];
  if (strcmp(mode, "nothing") == 0) {
    COUNT(SPAWNED);
    return 0;
  }
  if (strcmp(mode, "kill") == 0) {
    kill_children(argv, endlessly);
    return 0;
  }
  const int timer = strcmp(mode, "timer") == 0;
  endless = strcmp(mode, "endless") == 0 || strcmp(mode, "exit") == 0;
  pthread_t workers[WORKERS];
  int fds[2], full[2];
  state = 88172645463325252ul;
  if (pipe(fds) != 0 || pipe(full) != 0) return 4;
  if (timer) begin_timer();
  const pthread_t takes = begin(taker, NULL), waits = begin(waiter, NULL);
  begin(waiter_for_ever, NULL);
  const pthread_t reads = begin(reader, &fds[0]);
  const pthread_t writes = begin(writer, &full[1]), empties = begin(slow_reader, &full[0]);
  for (int i = 0; i < WORKERS; ++i) workers[i] = begin(worker, (void*)(long)(i + 1));
  if (timer) {
    struct itimerval every = {{0, 3000}, {0, 3000}};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  }
  if (strcmp(mode, "endless") == 0) {
    if (write(1, "x", 1) != 1) return 5;
    for (;;) pause();
  }
  for (int i = 0; i < 100; ++i) {
    pthread_join(begin(brief, NULL), NULL);
    work(i, 1);
    if (strcmp(mode, "spawn") == 0 && i % 20 == 0) spawn(argv);
  }
  if (strcmp(mode, "exit") == 0) {
    usleep(300000);
    exit(0);
  }
  for (int i = 0; i < WORKERS; ++i) pthread_join(workers[i], NULL);
  pthread_mutex_lock(&lock);
  closed = 1;
  pthread_cond_signal(&filled);
  pthread_mutex_unlock(&lock);
  pthread_join(writes, NULL);
  pthread_join(empties, NULL);
  pthread_join(takes, NULL);
  pthread_join(waits, NULL);
  close(fds[1]);
  pthread_join(reads, NULL);
  return 0;
}
"""


def check(program, mode, *options):
    """Returns how many procedures were translated again."""
    run = CountedRun(program, mode, 512, "--no-opt=recall", *options, number_of=KINDS.index)
    own = dict(zip(KINDS, run.own))
    if own["ROUND"] < 20 or own["ADD"] == 0 or own["JUMPED"] == 0:
        complain(f"{run.what}: the program has hardly run: {own}")
    renewed = run.fact("procedures_renewed")
    print(f"{run.what}: {renewed} translated again, {own['ROUND']} rounds, {own['TICKED']} ticks, "
          f"{own['TAKEN']} taken, {own['SPAWNED']} spawned")
    return renewed


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    program = compile_c("rest" + "".join((level, *flags)), SOURCE.replace("KILL_CHILDREN",
                                                                          KILL_CHILDREN),
                        level, *flags, f"-DROUNDS={ROUNDS}", f"-DWORKERS={WORKERS}",
                        f"-DKILLED={KILLED}", "-DKILL", "-pthread")
    if check(program, "whole") == 0:
        complain(f"{level} {flags}: the hot procedures stay where they were")
    for mode in MODES if level == "-O2" else ("exit", "kill"):
        renewed = check(program, mode, "--stress-renewal")
        if renewed < 10:
            complain(f"{level} {flags} {mode}: {renewed} procedures were translated again")
    check(program, "exit", "--stress-renewal", "--no-opt=paired,low32,hashes")
    if check(program, "kill", "--no-opt=renewal") != 0:
        complain(f"{level} {flags}: translated again though that is switched off")
finish()
