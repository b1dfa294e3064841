#!/usr/bin/env python3
"""A process ends while its threads are making threads: each of them is stopped somewhere, some at
the birth of another, some before their first instruction.  Nothing may be lost of any of them.

(A thread that is killed at one stop goes on to that at its exit by itself; it was resumed there by
whoever thought of the former stop, and its stack was never read.)
"""
import json

from refusal import accepted, compile_c, complain, finish, path, profile

PROGRAM = compile_c(
    "ends",
    r"""
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void* quick(void* p) { return p; }
    static void* maker(void* p) {
      for (;;) {
        pthread_t t;
        if (pthread_create(&t, 0, quick, 0) == 0) pthread_detach(t);
      }
    }
    int main(int argc, char** argv) {
      pthread_t t;
      for (int i = 0; i < 3; i++) pthread_create(&t, 0, maker, 0);
      usleep(2000 + 700 * atoi(argv[1]));
      exit(5);
    }
    """,
    "-pthread",
)
for number in range(40):
    accepted(profile("x.tally", PROGRAM, str(number % 10)), "amid births", status=5)
    report = json.loads(accepted(["report", path("x.tally"), "--format=json"], "report").stdout)
    if report["issues"] or not report["flow"]["balanced"]:
        complain(f"run {number}: {report['issues'][:3]} {report['flow']['faults'][:3]}")
finish()
