// Claim: interrupted system calls end with EINTR or are restarted exactly as natively: read,
// nanosleep with its remainder, futex, poll, pause, sigsuspend, select.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
// flags: -pthread
// oracle: output
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// An alarm that rings before its call has begun interrupts nothing: long enough for a busy machine
// and a breakpoint at each block.
enum { kAlarmMs = 100 };

static volatile int handled;
static int ends[2];
static void handler(int number) {
  (void)number;
  handled++;
}

static void install(int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(SIGALRM, &action, NULL);
}

static void alarm_in(long ms) {
  struct itimerval timer = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
  setitimer(ITIMER_REAL, &timer, NULL);
}

static void* writer(void* unused) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  while (!handled) usleep(1000);
  usleep(20000);
  if (write(ends[1], "x", 1) != 1) return NULL;
  return unused;
}

static void report(const char* what, long result) {
  int error = errno;
  printf("%s %ld %s handled %d\n", what, result, result < 0 ? strerror(error) : "-", handled);
  handled = 0;
}

int main(void) {
  char byte;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (pipe(ends) != 0) return 1;
  install(0);
  alarm_in(kAlarmMs);
  report("read", read(ends[0], &byte, 1));
  struct timespec ask = {0, 300000000}, rest = {9, 9};
  alarm_in(kAlarmMs);
  long r = nanosleep(&ask, &rest);
  printf("remainder %d\n", rest.tv_sec == 0 && rest.tv_nsec > 100000000 && rest.tv_nsec < 290000000);
  report("nanosleep", r);
  alarm_in(kAlarmMs);
  int word = 0;
  report("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0));
  struct pollfd p = {ends[0], POLLIN, 0};
  alarm_in(kAlarmMs);
  report("poll", poll(&p, 1, -1));
  alarm_in(kAlarmMs);
  report("pause", pause());
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  sigprocmask(SIG_BLOCK, &set, &old);
  alarm_in(kAlarmMs);
  usleep(1000 * (kAlarmMs + 50));
  report("blocked", 0);
  report("sigsuspend", sigsuspend(&old));
  sigset_t now;
  sigprocmask(SIG_SETMASK, &old, &now);
  printf("mask %d\n", sigismember(&now, SIGALRM));
  fd_set fds;
  FD_ZERO(&fds);
  alarm_in(kAlarmMs);
  report("select", select(0, &fds, NULL, NULL, NULL));
  install(SA_RESTART);
  pthread_t thread;
  pthread_create(&thread, NULL, writer, &word);
  alarm_in(kAlarmMs);
  report("read restarted", read(ends[0], &byte, 1));
  pthread_join(thread, NULL);
  alarm_in(kAlarmMs);
  struct timespec limit = {0, 1000000L * (kAlarmMs + 50)};
  report("futex restarted", syscall(SYS_futex, &word, FUTEX_WAIT, 0, &limit, NULL, 0));
  alarm_in(kAlarmMs);
  report("poll not restarted", poll(&p, 1, -1));
  // Nobody handles it: the kernel restarts by itself.
  signal(SIGALRM, SIG_IGN);
  alarm_in(kAlarmMs);
  struct timespec whole = {0, 1000000L * (kAlarmMs + 50)};
  report("nanosleep not disturbed", nanosleep(&whole, NULL));
  return 0;
}
