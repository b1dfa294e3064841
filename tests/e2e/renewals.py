#!/usr/bin/env python3
"""Hot procedures are translated again in mid-run, and nothing is lost: what a program counts
itself, in memory that outlives it, is what the profile says of the instructions that did.  There
are open calls, recursion that is left by longjmp, an interpreter that never returns, callbacks from
the C library, a timer's handler, and at the end a thread.  It runs to its end, and it is killed
from outside, again and again, while procedures move.  Under stress all of it moves now and then,
and the memory of what was there before is given back."""
from busy_work import BusyRun, source
from refusal import compile_c, complain, finish

ROUNDS, KILLED = 3000, 12
MAIN = r"""
static void* other(void* unused) {
  for (int i = 0; i < 100000; ++i) COUNT(THREAD);
  return unused;
}
int main(int argc, char** argv) {
  if (argc != 3 || !open_counts(argv[1])) return 2;
  if (strcmp(argv[2], "endless") == 0) {
    for (int round = 0;; ++round) work(round, 10000);
  }
  if (strcmp(argv[2], "kill") == 0) {
    for (int i = 0; i < KILLED; ++i) {
      const pid_t child = fork();
      if (child == 0) execl(argv[0], argv[0], argv[1], "endless", NULL);
      usleep(60000 + 17003 * i);
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
    }
    return 0;
  }
  if (strcmp(argv[2], "timer") == 0) begin_timer();
  for (int round = 0; round < ROUNDS; ++round) work(round, 10000);
  pthread_t thread;
  if (pthread_create(&thread, NULL, other, NULL) != 0) return 3;
  pthread_join(thread, NULL);
  for (int round = 0; round < 10; ++round) work(round, 10000);
  return 0;
}
"""


def check(program, mode, *options, given_back=None):
    """Returns how many procedures were translated again."""
    run = BusyRun(program, mode, ("THREAD",), *options)
    print(f"{run.fact('compactions')} compactions, {run.fact('code_given_back_bytes')} bytes, "
          f"{run.fact('code_pages_shared')} pages share their memory")
    if given_back not in (None, run.fact("code_given_back_bytes") > 0):
        complain(f"{run.what}: {run.fact('code_given_back_bytes')} bytes of code were given back")
    if given_back not in (None, run.fact("code_pages_shared") > 0):
        complain(f"{run.what}: {run.fact('code_pages_shared')} pages of code share their memory")
    return run.renewed


for level, *flags in (("-O1", "-no-pie"), ("-O2", "-pie"), ("-O2", "-static")):
    name = "renewed" + "".join((level, *flags))
    program = compile_c(name, source("THREAD") + MAIN, level, *flags, f"-DROUNDS={ROUNDS}",
                        f"-DKILLED={KILLED}", "-pthread")
    for mode in ("whole", "timer", "kill"):
        if check(program, mode) < 3:
            complain(f"{level} {flags} {mode}: the hot procedures stay where they were")
    if check(program, "whole", "--stress-renewal", given_back=True) < 30:
        complain(f"{level} {flags}: what has run is not translated again")
    for mode in ("whole", "kill"):
        check(program, mode, "--stress-renewal", "--no-opt=paired,low32,hashes", given_back=True)
    check(program, "timer", "--stress-renewal", "--no-opt=sparse,packed,defer,asks",
          given_back=True)
    check(program, "whole", "--stress-renewal", "--no-opt=compact", given_back=False)
    if check(program, "whole", "--no-opt=renewal") != 0:
        complain(f"{level} {flags}: translated again though that is switched off")
finish()
