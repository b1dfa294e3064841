#!/usr/bin/env python3
"""Two procedures jump into the middle of each other and call places in the middle of each other,
which is what parts of procedures do that a compiler has laid apart; dozens of children are killed
in that.  What they have counted themselves, in memory that outlives them, is what the profile says
of the instructions that did, and of the branches between them: each was taken as often as its
target was run, but for those who died in between."""
from own_counts import KILL_CHILDREN, CountedRun
from refusal import accepted, compile_c, complain, finish

KILLED = 60
THERE, BACK, CALLED = (0, 4), 1, 2  # places of the counts
SOURCE = r"""
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
// Computed jumps, which nobody can predict or find the targets of, lead to one of four places, each
// of which jumps back.
__asm__(R"(
  .macro there number
there\number:
at_\number: incq 8*\number(%rdi)
  jmp back
  .endm
  .text
  .type one, @function
one:
  .cfi_startproc
  mov $6364136223846793005, %r9
  mov %r9, %r8
  xor %eax, %eax
  jmp 1f
from_called:
at_2: incq 16(%rdi)
  ret
1:
  cmp %rsi, %rax
  je 2f
  call called_apart
at_3: incq 24(%rdi)
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
at_1: incq 8(%rdi)
  inc %rax
  test $63, %al
  jnz 3b
  jmp 1b
  .cfi_endproc
  .size one, .-one
  .type other, @function
other:
  .cfi_startproc
at_8: incq 64(%rdi)
  ret
  there 0
  there 4
  there 5
  there 6
called_apart:
  jmp from_called
  .cfi_endproc
  .size other, .-other
  .data
places: .quad there0, there4, there5, there6
  .text
)");
void one(volatile unsigned long* counts, unsigned long end);
void other(volatile unsigned long* counts);
static volatile unsigned long* counts;
#define COUNT(number) \
  __asm__ volatile(".globl at_" #number "\nat_" #number ": incq %0" : "+m"(counts[number]) : : "cc")
KILL_CHILDREN
static const char* mode_of(int i) {
  (void)i;
  return "endless";
}
int main(int argc, char** argv) {
  const int file = open(argv[1], O_RDWR);
  counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counts == MAP_FAILED || argc != 3) return 2;
  other(counts);
  if (strcmp(argv[2], "kill") == 0) return kill_children(argv, mode_of), 0;
  COUNT(7);
  if (strcmp(argv[2], "endless") == 0) {
    one(counts, 64000);  // and those 64,000 rounds are translated before the killing begins
    if (write(1, "", 1) != 1) return 3;
    one(counts, ~0ul);
  }
  one(counts, 640000);
  return 0;
}
"""


def check(program, mode, *options, renewed=None):
    run = CountedRun(program, mode, 512, *options)
    print(f"{run.what}: {run.own[:9]}")
    rounds = 64000 * (KILLED if mode == "kill" else 1)
    if run.own[BACK] < rounds or run.own[CALLED] < rounds // 64:
        complain(f"{run.what}: the program has hardly run")
    for place in (*THERE, BACK, CALLED):
        ways = sum(int(row["count"]) for row in run.edges
                   if int(row["to_block"], 16) == run.at[place])
        died = KILLED if mode == "kill" else 0
        if not run.own[place] <= ways <= run.own[place] + died:
            complain(f"{run.what}: {ways} ways lead to {place}, run {run.own[place]} times")
    if renewed is not None and (run.fact("procedures_renewed") > 0) != renewed:
        complain(f"{run.what}: {run.fact('procedures_renewed')} procedures were translated again")
    accepted(["check", run.file], f"{run.what}, check")


program = compile_c("between", SOURCE.replace("KILL_CHILDREN", KILL_CHILDREN), "-O1", "-no-pie",
                    f"-DKILLED={KILLED}")
for mode in ("kill", "whole"):
    check(program, mode, "--no-opt=recall,renewal", renewed=False)
    check(program, mode, "--no-opt=recall,renewal,paired,low32,joins,hashes", renewed=False)
    check(program, mode, "--no-opt=recall", "--stress-renewal", renewed=True)
check(program, "whole")  # leaves what it has seen
check(program, "kill")
finish()
