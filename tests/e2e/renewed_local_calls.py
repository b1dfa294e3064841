#!/usr/bin/env python3
"""A procedure that calls into itself is translated again while that call is open, and what comes
back to the new translation is the call that the old one made: nothing is off by one.  Calls whose
target lies in their own procedure have an edge of their own for what never comes back."""
import subprocess

import taught
from refusal import compile_c, complain, finish

# `local` calls a part of itself that leaves by two ways, one of which takes arguments with it.
PROGRAM = compile_c(
    "local_calls",
    r"""
    #include <stdio.h>
    #include <stdlib.h>
    long local(long i);
    __asm__(
        ".text\n"
        ".type local, @function\n"
        "local:\n"
        "  .cfi_startproc\n"
        "  push %rdi\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  push $6\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  call 1f\n"
        "  .cfi_adjust_cfa_offset -16\n"
        ".globl back_1\nback_1:\n"
        "  push %rax\n"
        "  .cfi_adjust_cfa_offset 8\n"
        "  call 2f\n"
        ".globl back_2\nback_2:\n"
        "  pop %rcx\n"
        "  .cfi_adjust_cfa_offset -8\n"
        "  add %rcx, %rax\n"
        "  ret\n"
        "1:\n"
        "  mov 8(%rsp), %rax\n"
        "  test $7, %dil\n"
        "  jz 3f\n"
        "  add 16(%rsp), %rax\n"
        "3:\n"
        "  ret $16\n"
        "2:\n"
        "  lea 1(%rdi), %rax\n"
        "  ret\n"
        "  .cfi_endproc\n"
        "  .size local, .-local\n");
    int main(int argc, char** argv) {
      const long n = atol(argv[1]);
      long sum = 0;
      for (long i = 0; i < n; i++) sum += local(i);
      printf("%ld\n", sum);
      return 0;
    }
    """)
TIMES = 5_000_000
text = subprocess.run(["nm", PROGRAM], capture_output=True, text=True, check=True).stdout
BACK = [int(line.split()[0], 16) for line in text.splitlines()
        if line.split()[-1] in ("back_1", "back_2")]


def check(*options):
    run = taught.Run(PROGRAM, [str(TIMES)], "", options)
    counts = {int(row[-2], 16): int(row[-1]) for row in run.counts[0]}
    for address in BACK:
        if counts.get(address) != TIMES:
            complain(f"{options}: {address:#x} ran {counts.get(address)} times, not {TIMES}")
    return run.fact("procedures_renewed")


if len(BACK) != 2:
    complain(f"the program has not both labels: {BACK}")
if check("--no-opt=renewal") != 0:
    complain("translated again though that is switched off")
renewed = [check("--no-opt=recall", *more)
           for more in ([], *[["--stress-renewal"]] * 12, *[["--stress-renewal",
                                                             "--no-opt=paired"]] * 4)]
print(f"translated again: {renewed}")
if not all(renewed):
    complain(f"procedures stay where they were: {renewed}")
finish()
