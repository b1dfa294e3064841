#!/usr/bin/env python3
"""More call sites than returns that jump have numbers for, and calls two bytes apart: every return
finds its way, in small programs and in large ones, and each is counted."""
import csv
import io
import json
import os

from refusal import accepted, compile_c, complain, finish, path

# Calls of one procedure, in 2500 procedures of 32 each; the last of each are through a register.
SITES, ROUNDS = 2500 * 32, 3
NUMBERS = 255 * 255
SOURCE = r"""
    #include <stdio.h>
    __asm__(
        ".text\n.type callee, @function\ncallee: incl calls(%rip)\n ret\n.size callee, . - callee\n"
        ".altmacro\n.set number, 0\n"
        ".macro sites n\n.type sites\\n, @function\nsites\\n:\n push %rbx\n"
        " lea callee(%rip), %rax\n.rept 30\n call callee\n.endr\n call *%rax\n call *%rax\n"
        " pop %rbx\n ret\n.size sites\\n, . - sites\\n\n.endm\n"
        ".rept 2500\n sites %number\n.set number, number + 1\n.endr\n"
        ".macro one n\n call sites\\n\n.endm\n"
        ".globl all\n.type all, @function\nall:\n push %rbx\n.set number, 0\n"
        ".rept 2500\n one %number\n.set number, number + 1\n.endr\n pop %rbx\n ret\n"
        ".size all, . - all\n"
    #ifdef LARGE
        ".skip 4 << 20, 0xcc\n"
    #endif
    );
    int calls;
    void all(void);
    int main(void) {
      for (int i = 0; i < ROUNDS; i++) all();
      printf("%d\n", calls);
      return 0;
    }
    """

# A run that knew of the one before would pair calls and returns in the small program, too.
ALONE = dict(os.environ, TALLY_CACHE="")


def run_of(program, what, options):
    """One run, whose counts are right; the facts of it."""
    done = accepted(["profile", "-o", path("many.tally"), *options, "--", program], what, env=ALONE)
    if done.stdout != b"%d\n" % (SITES * ROUNDS) or b"not exact" in done.stderr:
        complain(f"{what}: {done.stdout!r}, {done.stderr!r}")
    dump = accepted(["dump", "profile", path("many.tally"), "--format=json"], what).stdout
    listing = accepted(["dump", "instructions", path("many.tally")], what).stdout
    counts = {}
    for row in csv.DictReader(io.StringIO(listing.decode())):
        if row["module"] == program:
            count = int(row["count"])
            counts[count] = counts.get(count, 0) + 1
    # The callee's two instructions; of each 32 calls, all, with five instructions around them,
    # as often as there are rounds; and so the calls of those.
    if counts.get(SITES * ROUNDS) != 2 or counts.get(ROUNDS, 0) < 2500 * (32 + 4 + 1):
        complain(f"{what}: instructions by how often they ran: {counts}")
    return {fact["name"]: fact["value"] for fact in json.loads(dump)["run"]}


for kind, *flags in (("small",), ("large", "-DLARGE")):
    program = compile_c(kind, SOURCE, f"-DROUNDS={ROUNDS}", *flags)
    for options in ((), ("--no-opt=low32",), ("--no-opt=recall,joins",), ("--no-opt=direct",),
                    ("--no-opt=direct,recall,joins",), ("--no-opt=sparse",),
                    ("--no-opt=sparse", "--no-opt=low32"),
                    ("--no-opt=sparse", "--no-opt=recall,joins")):
        what = f"{kind} {options}"
        facts = run_of(program, what, options)
        # Once all code was made again, landings have numbers by what was returned to until then,
        # which depends on the moment.
        if int(facts["compactions"]) > 0:
            print(f"{what}: all code was made once more")
            what += " --no-opt=compact"
            facts = run_of(program, what, (*options, "--no-opt=compact"))
        # Where all are numbered: too close together is at least one of three in each procedure;
        # beyond that, small programs have no more numbers than NUMBERS.  Else many of the pages of
        # code are numbered in the course of these rounds (src/cache/landings.h, kLookupsMin); and
        # where landings are found directly as well, no return comes here often enough for a page
        # that has no number to get one, but for the few that a sample shows (kDirectMax).
        hashed, direct = (int(facts["landings_" + how]) for how in ("hashed", "direct"))
        without = max(2500, SITES - NUMBERS if kind == "small" else 0)
        directly = not {"direct", "sparse", "low32"} & {
            name for option in options for name in option.removeprefix("--no-opt=").split(",")}
        least, most = (without, without + 3 * 2500) if "--no-opt=sparse" in options else \
                      (SITES * 3 // 4, SITES) if directly else \
                      (SITES // (8 if kind == "small" else 16), SITES * 7 // 8)
        if not least <= hashed <= most or not 100 * directly <= direct <= SITES * directly:
            complain(f"{what}: {hashed} landings are looked up by a hash, {direct} found directly")
finish()
