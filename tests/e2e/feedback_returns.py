#!/usr/bin/env python3
"""Exact weights never need more increments than guessed ones: also where two ways meet to return.

Returns are no edges of a profile, so their weights come from the blocks they end.
"""
import json

from refusal import accepted, compile_c, complain, finish, path

PROGRAM = compile_c(
    "returns_weighed",
    r"""
    volatile int sums[2];
    __attribute__((noinline)) static void either(int i) {
      if (i & 1) {
        sums[0] += i;
      } else {
        sums[1] -= i;
      }
      __asm__ volatile("nop");  /* one return for both */
    }
    int main(void) {
      for (int i = 0; i < 100000; i++) either(i);
      return 0;
    }
    """,
)


def increments(name, placement):
    accepted(["profile", "-o", path(name), f"--placement={placement}", "--", PROGRAM], placement)
    dump = json.loads(accepted(["dump", "profile", path(name), "--format=json"], "dump").stdout)
    return next(int(f["value"]) for f in dump["run"] if f["name"] == "counter_increments")


quick = increments("quick.tally", "edges")
feedback = increments("feedback.tally", "feedback=" + path("quick.tally"))
print(f"quick {quick}, feedback {feedback}")
if feedback > quick * 1.01:
    complain(f"exact weights need {feedback} increments, guessed ones {quick}")
finish()
