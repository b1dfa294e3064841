#!/usr/bin/env python3
"""Hot procedures are translated again while several threads run, all of which stand still for it,
and nothing is lost: what the program counts itself, in memory that outlives it, is what the profile
says of the instructions that did.  The threads are in recursion that is left by longjmp, in an
interpreter that never returns, in callbacks from the C library and in handlers; they wait for each
other, for input that never comes and for time to pass, and write more than a pipe holds, none of
which is ever cut short; others come and go, and so do processes.  The program runs to its end, ends
while all are busy, and is killed from outside."""
import collections

from busy_work import BusyRun, source
from own_counts import KILL_CHILDREN
from refusal import compile_c, complain, finish

MODES = ("whole", "timer", "spawn", "exit", "kill")
MORE_KINDS = ("BRIEF", "TAKEN", "SPAWNED")
ROUNDS, WORKERS, KILLED = 1500, 3, 10
MAIN = r"""
#include <limits.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <time.h>
static int rounds = ROUNDS;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static unsigned long queued;
static int closed;
static void play(int round) {
  work(round, 3000);
  pthread_mutex_lock(&lock);
  ++queued;
  pthread_cond_signal(&filled);
  pthread_mutex_unlock(&lock);
}
static void* worker(void* seed) {
  state = (unsigned long)seed;
  for (int round = 0; round < rounds; ++round) play(round);
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
static int block_timer(int how) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  return pthread_sigmask(how, &set, NULL);
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
// Of every other one.
#define HAS_COME_FAR(i) \
  ((i) % 2 == 0 || (counts[ROUND] > 4ul * (i) && counts[ADD] >= 9ul * (i) && counts[JUMPED] > 0))
KILL_CHILDREN
static const char* endlessly(int i) {
  (void)i;
  return "endless";
}
int main(int argc, char** argv) {
  if (argc != 3 || !open_counts(argv[1])) return 2;
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
  if (strcmp(mode, "endless") == 0 || strcmp(mode, "exit") == 0) rounds = INT_MAX;
  if (strcmp(mode, "long") == 0) rounds = 4 * ROUNDS;
  pthread_t workers[WORKERS];
  int fds[2], full[2];
  if (pipe(fds) != 0 || pipe(full) != 0) return 4;
  block_timer(SIG_BLOCK);  // those made from here on do not get it
  const pthread_t takes = begin(taker, NULL), waits = begin(waiter, NULL);
  begin(waiter_for_ever, NULL);
  const pthread_t reads = begin(reader, &fds[0]);
  const pthread_t writes = begin(writer, &full[1]), empties = begin(slow_reader, &full[0]);
  for (int i = 0; i < WORKERS; ++i) workers[i] = begin(worker, (void*)(long)(i + 1));
  block_timer(SIG_UNBLOCK);
  if (timer) begin_timer();
  if (strcmp(mode, "endless") == 0) {
    if (write(1, "x", 1) != 1) return 5;
    for (;;) pause();
  }
  for (int i = 0; i < 100; ++i) {
    pthread_join(begin(brief, NULL), NULL);
    play(i);
    if (strcmp(mode, "spawn") == 0 && i % 20 == 0) spawn(argv);
  }
  if (strcmp(mode, "exit") == 0) {
    usleep(1500000);
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


shared, given_back = collections.Counter(), collections.Counter()  # of code, by program


def check(program, mode, *options):
    """Returns how many procedures were translated again."""
    run = BusyRun(program, mode, MORE_KINDS, *options)
    print({kind: run.own_of[kind] for kind in MORE_KINDS})
    print(f"{run.fact('compactions')} compactions, {run.fact('code_given_back_bytes')} bytes, "
          f"{run.fact('code_pages_shared')} pages shared")
    shared[program] += run.fact("code_pages_shared")
    given_back[program] += run.fact("code_given_back_bytes")
    return run.renewed


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    program = compile_c("rest" + "".join((level, *flags)), source(*MORE_KINDS) +
                        MAIN.replace("KILL_CHILDREN", KILL_CHILDREN), level, *flags,
                        f"-DROUNDS={ROUNDS}", f"-DWORKERS={WORKERS}", f"-DKILLED={KILLED}",
                        "-pthread")
    if check(program, "long") == 0:
        complain(f"{level} {flags}: the hot procedures stay where they were")
    for mode in MODES if level == "-O2" else ("exit", "kill"):
        renewed = check(program, mode, "--stress-renewal")
        if renewed < 10:
            complain(f"{level} {flags} {mode}: {renewed} procedures were translated again")
    check(program, "exit", "--stress-renewal", "--no-opt=paired,low32,hashes")
    if check(program, "kill", "--no-opt=renewal") != 0:
        complain(f"{level} {flags}: translated again though that is switched off")
    # In some of the runs a signal to the thread that does so comes in between, and in others
    # threads come to rest too late.
    if given_back[program] == 0:
        complain(f"{level} {flags}: in no run was memory given back")
    if shared[program] == 0:
        complain(f"{level} {flags}: in no run were pages of code shared")
finish()
