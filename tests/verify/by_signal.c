// What handlers of signals do, by who sent the signal.
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>

static volatile int sink;
static volatile sig_atomic_t alarms;

__attribute__((noinline)) static void tick(int n) {
  for (int i = 0; i < n; ++i) sink += i % 7 == 3 ? 2 : 1;
}

// A timer's: once in each run, whatever it interrupts.
__attribute__((noinline)) static void alarmed(int signal) {
  tick(5);
  if (signal != SIGALRM) sink += 1;
  alarms = 1;
}

// Nobody sends it here.
__attribute__((noinline)) static void told(int signal) {
  for (int i = 0; i < signal; ++i) sink += i;
}

// The program sends it to itself.
__attribute__((noinline)) static void own(int signal) {
  for (int i = 0; i < signal; ++i) sink += i;
}

__attribute__((noinline)) static void work(int n) {
  for (int i = 0; i < n; ++i) sink += i % 5 == 3 ? 2 : 1;
}

int main(void) {
  const struct itimerval soon = {.it_value = {0, 1000}};
  sigset_t alarm_only, before;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  signal(SIGALRM, alarmed);
  signal(SIGUSR1, own);
  signal(SIGUSR2, told);
  sigprocmask(SIG_BLOCK, &alarm_only, &before);
  setitimer(ITIMER_REAL, &soon, 0);
  raise(SIGUSR1);
  work(100);
  for (int i = 0; i < 10; ++i) tick(10);
  while (!alarms) sigsuspend(&before);
  puts("done");
  return 0;
}
