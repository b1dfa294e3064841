#!/usr/bin/env python3
"""By traps: a thread becomes another program while others are emulated.  One that is killed between
its stop and the end of its emulation is not lost; what was told of it is what it has done.
"""
import os
import subprocess
import sys

from verifying import TALLY, WORK, expect, finish, run

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static char** arguments;
static volatile long sum;
static void* spin(void* p) {
  for (;;) {
    for (int i = 0; i < 3000; i++) sum += i;
    usleep(20);
  }
  return p;
}
static void* becomes(void* p) {
  char left[20];
  usleep(rand() % 8000);
  sprintf(left, "%d", atoi(arguments[1]) - 1);
  execl(arguments[0], arguments[0], left, (char*)0);
  return p;
}
int main(int argc, char** argv) {
  pthread_t t;
  arguments = argv;
  if (atoi(argv[1]) == 0) return 5;
  srand(getpid() * 77 + atoi(argv[1]));
  for (int i = 0; i < 2; i++) pthread_create(&t, 0, spin, 0);
  pthread_create(&t, 0, becomes, 0);
  for (;;) pause();
}
"""


def main():
    program = os.path.join(WORK, "becomes")
    source = program + ".c"
    with open(source, "w", encoding="utf-8") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-pthread", source, "-o", program], check=True)
    file, report = os.path.join(WORK, "x.tally"), os.path.join(WORK, "verdict")
    done = run([TALLY, "profile", "-o", file, "--", program, "3"], "profile")
    expect(done.status == 5, f"profile: {done.end()}")
    for number in range(int(os.environ.get("RUNS", "15"))):
        done = run([TALLY, "verify", "--once", "--profile=" + file, "-o", report, "--", program,
                    "20"], "verify")
        expect(done.status == 1, f"run {number}: {done.end()}")
        with open(report, encoding="utf-8") as f:
            lost = [line for line in f if line.startswith("Lost") or "was found at" in line]
        expect(not lost, f"run {number}: {lost}")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
