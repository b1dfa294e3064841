#!/usr/bin/env python3
"""A process that has locked all memory it will have is not attached to, by name, and goes on as it
was; one that locks memory as it is touched is."""
import os
import subprocess

from refusal import accepted, compile_c, complain, finish, path, refused

SOURCE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline, noclone)) static int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }
int main(int argc, char** argv) {
  if (argc != 2 || mlockall(atoi(argv[1])) != 0) return 77;
  int sum = 0;
  printf("begun\n");
  fflush(stdout);
  char byte;
  for (int i = 0; read(0, &byte, 1) == 1; ++i) sum += f(20);
  for (int i = 0; i < 40; ++i) sum += f(20);
  return sum > 0 ? 3 : 4;
}
"""
program = compile_c("locks", SOURCE)


def begun(flags):
    process = subprocess.Popen([program, str(flags)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if process.stdout.readline() != b"begun\n":
        print("mlockall is not allowed here")
        raise SystemExit(77)
    return process


def ended(process, said):
    process.stdin.close()
    if process.wait(timeout=60) != 3:
        complain(f"{said}: the process ended with {process.returncode}")


CURRENT, FUTURE, ON_FAULT = 1, 2, 4
for flags in (FUTURE, CURRENT | FUTURE):
    process = begun(flags)
    refused(["profile", f"--pid={process.pid}", "-o", path("a.tally")], f"flags {flags}", 125,
            ["mlockall", "MCL_FUTURE", "begin it under Tally"])
    ended(process, f"flags {flags}")
# What is mapped for Tally is locked, too, then, which an ordinary user may not.
for flags in (CURRENT, CURRENT | FUTURE | ON_FAULT)[:2 if os.geteuid() == 0 else 1]:
    process = begun(flags)
    process.stdin.write(b"0123456789")
    process.stdin.flush()
    accepted(["profile", f"--pid={process.pid}", "--duration=1s", "-o", path("a.tally")],
             f"flags {flags}")
    ended(process, f"flags {flags}")
    os.remove(path("a.tally"))
finish()
