#!/usr/bin/env python3
"""A thread becomes another program, five times in a row, while others make threads: all of them
are killed wherever they are, at a birth, on the way into code that is not translated yet, or before
their first instruction.  RUNS=60 makes 300 of it.
"""
import json
import os

from refusal import accepted, compile_c, complain, finish, path, profile

PROGRAM = compile_c(
    "becomes",
    r"""
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    static char** arguments;
    static void* quick(void* p) { return p; }
    static void* maker(void* p) {
      for (;;) {
        pthread_t t;
        if (pthread_create(&t, 0, quick, 0) == 0) pthread_detach(t);
      }
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
      for (int i = 0; i < 2; i++) pthread_create(&t, 0, maker, 0);
      pthread_create(&t, 0, becomes, 0);
      for (;;) pause();
    }
    """,
    "-pthread",
)
for number in range(int(os.environ.get("RUNS", "12"))):
    accepted(profile("x.tally", PROGRAM, "5"), f"run {number}", status=5)
    report = json.loads(accepted(["report", path("x.tally"), "--format=json"], "report").stdout)
    if len(report["runs"]) != 6 or not all(run["balanced"] for run in report["runs"]):
        complain(f"run {number}: {report['runs']} {report['issues'][:3]}")
finish()
