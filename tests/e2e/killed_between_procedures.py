#!/usr/bin/env python3
"""Two procedures jump into the middle of each other and call places in the middle of each other,
which is what parts of procedures do that a compiler has laid apart; a hundred children are killed
in that.  What they have counted themselves, in memory that outlives them, is what the profile says
of the instructions that did, and of the branches between them: each was taken as often as its
target was run, but for those who died in between."""
import os

from own_counts import addresses, counts_of, dumped, expect_own
from refusal import accepted, compile_c, complain, finish, path

CHILDREN = 100
KINDS = ("THERE0", "BACK", "CALLED", "CALLER", "PLAIN", "CHILD", "THERE1", "THERE2", "THERE3",
         "PARENT")  # behind `at_`
SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// Computed jumps, which nobody can predict or find the targets of, lead to one of four places, each
// of which jumps back.
__asm__(R"(
  .text
  .type one, @function
one:
  .cfi_startproc
  mov $6364136223846793005, %r9
  mov %r9, %r8
  xor %eax, %eax
  jmp 1f
from_called:
at_CALLED: incq 16(%rdi)
  ret
1:
  cmp %rsi, %rax
  je 2f
  call called_apart
at_CALLER: incq 24(%rdi)
3:
  imul %r9, %r8
  inc %r8
  mov %r8, %rdx
  shr $62, %rdx
  mov %rdx, -8(%rsp)
  mov -8(%rsp), %rdx
  jmp *places(,%rdx,8)
2:
  ret
back:
at_BACK: incq 8(%rdi)
  inc %rax
  test $63, %al
  jnz 3b
  jmp 1b
  .cfi_endproc
  .size one, .-one
  .type other, @function
other:
  .cfi_startproc
at_PLAIN: incq 32(%rdi)
  ret
there0:
at_THERE0: incq (%rdi)
  jmp back
there1:
at_THERE1: incq 48(%rdi)
  jmp back
there2:
at_THERE2: incq 56(%rdi)
  jmp back
there3:
at_THERE3: incq 64(%rdi)
  jmp back
called_apart:
  jmp from_called
  .cfi_endproc
  .size other, .-other
  .data
places: .quad there0, there1, there2, there3
  .text
)");
void one(volatile unsigned long* counts, unsigned long end);
void other(volatile unsigned long* counts);
int main(int argc, char** argv) {
  (void)argv;
  unsigned long* counts =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  other(counts);
    if (argc > 1) one(counts, 64000);
  for (int i = 0; argc == 1 && i < CHILDREN; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      __asm__ volatile("at_CHILD: incq 40(%0)" : : "r"(counts) : "memory", "cc");
      one(counts, ~0ul);
    }
    __asm__ volatile("at_PARENT: incq 72(%0)" : : "r"(counts) : "memory", "cc");
    usleep(10000 + 13 * i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
  }
  for (int kind = 0; kind < KINDS; ++kind) printf("%lu\n", counts[kind]);
  return 0;
}
"""
ENTERED = ("THERE0", "THERE3", "BACK", "CALLED")  # each a block of its own


def check(what, program, *options):
    file = path("between.tally")
    done = accepted(["profile", "-o", file, *options, "--", program], what, timeout=120)
    own = dict(zip(KINDS, map(int, done.stdout.split())))
    counted = counts_of(dumped("instructions", file, what))
    expect_own(what, counted, program, own, str)
    if len(own) != len(KINDS) or min(own[kind] for kind in ENTERED) < 100 * CHILDREN:
        complain(f"{what}: the children have hardly run: {own}")
    edges = dumped("edges", file, what)
    at = addresses(program)
    for kind in ENTERED:
        ways = sum(int(row["count"]) for row in edges
                   if row["to_module"] == program and int(row["to_block"], 16) == at[kind])
        if not own[kind] <= ways <= own[kind] + CHILDREN:
            complain(f"{what}: {ways} ways lead to {kind}, which was run {own[kind]} times")
    accepted(["check", file], f"{what}, check")
    print(what, own)


program = compile_c("between", SOURCE, "-O1", "-no-pie", f"-DCHILDREN={CHILDREN}",
                    f"-DKINDS={len(KINDS)}")
os.environ["TALLY_CACHE"] = path("known")
for options in ((), ("--no-opt=recall,paired,low32,joins,hashes",), ("--stress-renewal",)):
    check(f"killed between {' '.join(options)}", program, *options)
accepted(["profile", "-o", path("once.tally"), "--", program, "once"], "once")
check("killed between, known", program)
finish()
