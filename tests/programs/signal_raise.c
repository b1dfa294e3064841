// Claim: handlers with and without SA_SIGINFO run as natively; nested ones, with SA_NODEFER and with
// masks; every count equals the single-stepper's.
// build: gcc,clang O0,O2 pie,nopie static,dynamic
// ci: gcc O2 pie dynamic; clang O0 nopie static; gcc O0 nopie dynamic; clang O2 pie static
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static volatile int plain, detailed, depth, deepest, order;

static void on_plain(int number) { plain += number; }

static void on_detailed(int number, siginfo_t* info, void* context) {
  const ucontext_t* u = context;
  if (info->si_signo == number && u->uc_mcontext.gregs[REG_RIP] != 0) detailed++;
}

static void on_nested(int number) {
  if (++depth > deepest) deepest = depth;
  if (depth < 5) raise(number);
  depth--;
}

static void on_inner(int number) { order = order * 10 + number % 10; }
static void on_outer(int number) {
  raise(SIGUSR1);  // blocked by this handler's mask: comes when it has returned
  raise(SIGHUP);
  order = order * 10 + number % 10;
}

static void install(int number, void (*handler)(int), int flags, int masked) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handler;
  action.sa_flags = flags;
  if (masked) sigaddset(&action.sa_mask, masked);
  sigaction(number, &action, NULL);
}

int main(void) {
  install(SIGUSR1, on_plain, 0, 0);
  install(SIGUSR2, (void (*)(int))on_detailed, SA_SIGINFO, 0);
  install(SIGTERM, on_nested, SA_NODEFER, 0);
  for (int i = 0; i < 10; i++) {
    raise(SIGUSR1);
    raise(SIGUSR2);
  }
  raise(SIGTERM);
  install(SIGUSR1, on_inner, 0, 0);
  install(SIGHUP, on_inner, 0, 0);
  install(SIGINT, on_outer, 0, SIGUSR1);
  raise(SIGINT);
  install(SIGQUIT, on_plain, SA_RESETHAND, 0);
  raise(SIGQUIT);
  struct sigaction now;
  sigaction(SIGQUIT, NULL, &now);
  printf("%d %d %d %d %d\n", plain, detailed, deepest, order, now.sa_handler == SIG_DFL);
  return 0;
}
