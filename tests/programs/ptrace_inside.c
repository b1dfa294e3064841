// Claim: a program that asks to be traced learns that it is (one tracer each), as under any debugger
// or strace, and goes on; the profile says that it was refused.
// build: gcc O2 pie dynamic
// oracle: output
// inexact: asked to trace
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  (void)argc, (void)argv;
  int status = 0;
  pid_t child = fork();
  if (child == 0) {
    long result = ptrace(PTRACE_TRACEME, 0, 0, 0);
    _exit(result == 0 || errno == EPERM ? 3 : 1);
  }
  waitpid(child, &status, 0);
  printf("%d\n", WEXITSTATUS(status));
  return 0;
}
