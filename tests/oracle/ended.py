"""Wherever in translated code, in its stubs or in the gateway a program is killed, the profile
holds the instructions that it has executed and no others.  Tiny programs are ended at one
instruction of the code cache after the other (--stress-end, which steps through it).  What the
profile has then is what the single-stepper saw natively up to some instruction; and nothing is
named as not exact.  (That it is the right one, tests know whose programs count in memory that
outlives them: killed_on_edges.py, killed_between_procedures.py.)

Of each program some dozens of ends are tried, evenly spread; all of them with STEPS=all, and only
those of one program with STEPS=NAME/CONFIGURATION."""
import collections
import csv
import os
import shutil
import signal
import sqlite3
import subprocess

import processes
from programs import Program, build
from refusal import TALLY, WORK, accepted, complain, finish, path, run

ENDS = 40  # at least
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WAYS = ((), ("--no-opt=paired,low32,hashes,joins",), ("--stress-renewal",))
BY_INDEX = ("--stress-index",)
# Blocks and edges get no code until control gets there: most of the steps are then in the gateway.
DEFERRED = ("--stress-defer",)
WITH_DEFERRED = ("asm_jump_middle", "asm_return_out")
# These surely ask again once something was translated in mid-run, from described code.
PAIRED_LATE = ("tail_call",)
# In later runs loops of these are counted by registers.
WITH_LOOPS = ("asm_loops_few",)
# Each end is that of a first run, or of one with what two earlier runs have left.
TAUGHT = path("taught")


def native(program):
    prefix = path("native")
    # Programs may look through their environment, which is the same for all.
    subprocess.run([os.environ["STEPPER"], "-o", prefix, "--order", "--", program],
                   stdout=subprocess.DEVNULL, timeout=60, env=environment(taught=False))
    with open(prefix + ".order.csv", encoding="utf-8") as f:
        return [(row["module"], int(row["address"], 16)) for row in csv.DictReader(f)]


def environment(taught):
    """What each of the runs finds is the same: it is copied for it."""
    now = path("now")
    shutil.rmtree(now, ignore_errors=True)
    if taught:
        shutil.copytree(TAUGHT, now)
    return dict(processes.ENVIRONMENT, TALLY_CACHE=now if taught else "")


def teach(program):
    shutil.rmtree(TAUGHT, ignore_errors=True)
    for _ in range(2):
        accepted(["profile", "-o", path("lesson.tally"), "--", program], "lesson",
                 env=dict(processes.ENVIRONMENT, TALLY_CACHE=TAUGHT))


def end_after(program, steps, options, said, taught):
    """Whether it was killed, what was counted, and the facts."""
    file = path("ended.tally")
    done = run(["profile", "-o", file, *options, f"--stress-end={steps}", "--", program],
               f"{said}, signal", env=environment(taught))
    if done.stderr:
        complain(f"{said}: says on stderr: {done.stderr.decode(errors='replace').strip()}")
    text = subprocess.run([TALLY, "dump", "instructions", file, "--format=csv"], check=True,
                          capture_output=True, text=True).stdout
    counted = {(row["module"], int(row["address"], 16)): int(row["count"])
               for row in csv.DictReader(text.splitlines()) if row["count"] != "0"}
    with sqlite3.connect(file) as database:
        facts = dict(database.execute("SELECT name, value FROM facts"))
    return done.signal == signal.SIGKILL, counted, facts


class Ends:
    def __init__(self, program, options, taught=False):
        self.program, self.options, self.taught = program, options, taught
        self.what = f"{os.path.basename(program)} {' '.join(options)}{' later' * taught}"
        self.order = native(program)
        self.tried = {}  # by steps: how many instructions
        self.paired = self.paired_late = self.by_index = self.loops = 0

    def at(self, steps):
        """How many instructions were executed then; None if the program ended by itself."""
        said = f"{self.what}, end after {steps}"
        killed, counted, facts = end_after(self.program, steps, self.options, said,
                                           self.taught)
        self.by_index += int(facts["jumps_by_index"])
        self.loops += int(facts["loops_by_register"]) > 0
        self.paired += int(facts["returns_paired"])
        self.paired_late += int(facts["procedures_paired_late"])
        total = sum(counted.values())
        expected = collections.Counter(self.order[:total])
        if counted != expected:
            places = sorted(set(counted) | set(expected))
            wrong = [f"{m and os.path.basename(m)}+{a:#x}: {counted.get((m, a), 0)}, natively "
                     f"{expected[m, a]}" for m, a in places
                     if counted.get((m, a), 0) != expected[m, a]]
            complain(f"{said}: {total} instructions, not the first ones: {'; '.join(wrong[:4])}")
        if not killed and total != len(self.order):
            complain(f"{said}: ended by itself after {total} of {len(self.order)} instructions")
        self.tried[steps] = total
        return total if killed else None

    def try_all(self, every):
        last = 64
        while self.at(last) is not None:
            last *= 2
        stride = 1 if every else max(1, last // 2 // ENDS)  # it ends between last / 2 and last
        for steps in range(1, last, stride):
            if self.at(steps) is None:
                break
        # Waits for answers count as steps, too, eight each.
        print(f"{self.what}: {len(self.tried)} ends, {len(self.order)} instructions, "
              f"{len(set(self.tried.values()))} of them ended at, in {self.paired} returns in "
              f"pairs, {self.paired_late} procedures in pairs that were not at first")
        if len(set(self.tried.values())) < ENDS // 5:
            complain(f"{self.what}: hardly any instructions were ended at")


def check(programs):
    """`programs`: of tests/programs by name, and how each is built."""
    wanted = os.environ.get("STEPS", "")
    for name, config in programs.items():
        if wanted in ("", "all", f"{name}/{'-'.join(config)}"):
            check_one(name, config, every=wanted != "")
    finish()


def check_one(name, config, every):
    source = next(p for p in (os.path.join(HERE, "programs", name + s) for s in (".c", ".S"))
                  if os.path.exists(p))
    program = build(Program(source), config, WORK)
    further = [BY_INDEX] * ("by_index" in name) + [DEFERRED] * (name in WITH_DEFERRED)
    later = name in WITH_LOOPS
    if later:
        teach(program)
    ways = [*WAYS, *further]
    for options, taught in ((o, t) for t in range(1 + later) for o in ways):
        ends = Ends(program, options, taught=bool(taught))
        ends.try_all(every)
        # What ends before the program's own code is translated has none.
        if taught and ends.loops < len(ends.tried) // 2:
            complain(f"{ends.what}: in {ends.loops} of the ends a register counted")
        if options == BY_INDEX and ends.by_index < len(ends.tried):
            complain(f"{ends.what}: {ends.by_index} jumps went by the program's index")
        stressed = "--stress-renewal" in options  # which may pair the returns of any of them
        late = stressed and name in PAIRED_LATE
        large = name.endswith("_large") and "paired" not in str(options)
        if ends.paired == 0 and (late or large) or ends.paired > 0 and not (stressed or large):
            complain(f"{ends.what}: returns were in pairs in {ends.paired} of the ends")
        if ends.paired_late == 0 and late or ends.paired_late > 0 and not stressed:
            complain(f"{ends.what}: {ends.paired_late} procedures came to pairs late")
