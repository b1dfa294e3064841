// Claim: sigwait, sigwaitinfo, sigtimedwait, signalfd and sigpending take blocked signals as they
// come; queued real-time signals are handled in order, with their values.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static volatile long values, order;
static void handler(int number, siginfo_t* info, void* context) {
  (void)context;
  values = values * 10 + info->si_value.sival_int;
  order = order * 10 + (number - SIGRTMIN) + (info->si_code == SI_QUEUE ? 0 : 5);
}

int main(void) {
  sigset_t set, old;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigaddset(&set, SIGUSR2);
  sigaddset(&set, SIGRTMIN);
  sigaddset(&set, SIGRTMIN + 1);
  sigprocmask(SIG_BLOCK, &set, &old);
  int got = 0;
  raise(SIGUSR1);
  sigwait(&set, &got);
  siginfo_t info;
  union sigval value = {.sival_int = 42};
  sigqueue(getpid(), SIGUSR2, value);
  int other = sigwaitinfo(&set, &info);
  struct timespec none = {0, 0};
  int third = sigtimedwait(&set, &info, &none);
  printf("%d %d %d %d %d\n", got, other, info.si_value.sival_int, third, errno == EAGAIN);
  int fd = signalfd(-1, &set, 0);
  raise(SIGUSR1);
  struct signalfd_siginfo read_info;
  long size = read(fd, &read_info, sizeof read_info);
  printf("%ld %u\n", size, read_info.ssi_signo);
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO;
  sigaddset(&action.sa_mask, SIGRTMIN);
  sigaddset(&action.sa_mask, SIGRTMIN + 1);
  sigaction(SIGRTMIN, &action, NULL);
  sigaction(SIGRTMIN + 1, &action, NULL);
  for (int i = 1; i <= 6; i++) {
    value.sival_int = i;
    sigqueue(getpid(), SIGRTMIN + i % 2, value);
  }
  sigset_t pending;
  sigpending(&pending);
  sigprocmask(SIG_SETMASK, &old, NULL);
  printf("%ld %ld %d\n", values, order, sigismember(&pending, SIGRTMIN));
  return 0;
}
