// Writes the addresses of all instructions that a program executes from an address on, in their
// order, by single-stepping: step_trace START PROGRAM ARGS > FILE of 64-bit numbers.
//
// For making the branch records that a processor with branch stacks would give, on one that has
// none.  The program is not position-independent, and has one thread.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static int stopped(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) _exit(3);
  return WIFSTOPPED(status);
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const uint64_t start = strtoull(argv[1], 0, 16);
  const pid_t child = fork();
  if (child == 0) {
    dup2(2, 1);  // its output is not ours
    personality(ADDR_NO_RANDOMIZE);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[2], argv + 2);
    _exit(4);
  }
  if (!stopped(child)) return 5;
  ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL);
  const long word = ptrace(PTRACE_PEEKTEXT, child, start, 0);
  ptrace(PTRACE_POKETEXT, child, start, (word & ~0xffL) | 0xcc);
  ptrace(PTRACE_CONT, child, 0, 0);
  if (!stopped(child)) return 6;
  struct user_regs_struct regs;
  ptrace(PTRACE_GETREGS, child, 0, &regs);
  if (regs.rip != start + 1) return 7;
  ptrace(PTRACE_POKETEXT, child, start, word);
  regs.rip = start;
  ptrace(PTRACE_SETREGS, child, 0, &regs);
  do {
    ptrace(PTRACE_GETREGS, child, 0, &regs);
    const uint64_t at = regs.rip;
    if (fwrite(&at, sizeof at, 1, stdout) != 1) return 8;
    ptrace(PTRACE_SINGLESTEP, child, 0, 0);
  } while (stopped(child));
  return fflush(stdout) == 0 ? 0 : 8;
}
