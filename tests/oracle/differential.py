"""One random program under Tally in all the ways in which it may be counted, and under callgrind.

Programs come from a seed: of `flow` (random_flow.py), of `wild` (random_wild.py), or of csmith, by
a compiler, with options, that the seed chooses.  A program runs with two lists of arguments, so
that what an earlier run has left is right in some runs of Tally and wrong in others.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess

import against_callgrind
import callgrind
import processes
import random_flow
import random_wild

TIMEOUT_S = 120
NATIVE_MAX_S = 0.5
# What Tally may say of programs that do what it does not follow.
NAMED = ("a return led here, behind no call", "was changed after it had run")
OPTIMIZATIONS = ("ahead", "tables", "recall", "weights", "renewal", "order", "defer", "shared",
                 "joins", "notes", "hashes", "flags", "low32", "paired", "unspilled", "index",
                 "sealed", "through", "found", "packed", "sparse", "direct", "asks", "fronts",
                 "near", "callers", "rest", "compact", "induction")
CSMITH_OPTIONS = ("--no-argc", "--no-bitfields", "--no-packed-struct", "--no-volatiles",
                  "--no-jumps", "--inline-function", "--no-longlong", "--no-math64")
C_OPTIONS = ("-O0", "-O1", "-O2", "-O2 -funroll-loops", "-O2 -fno-tree-vectorize -fno-inline",
             "-O3", "-O3 -march=x86-64-v3", "-Os", "-O2 -fno-asynchronous-unwind-tables",
             "-O2 -fcf-protection -fno-omit-frame-pointer", "-O2 -fsanitize=undefined",
             "-O1 -fstack-protector-all -mno-red-zone", "-O2 -finstrument-functions",
             "-O2 -fpatchable-function-entry=5,2 -falign-functions=1", "-O2 -ffunction-sections")
# Against speculation: one compiler's options each.
HARDENING = {"gcc": ("-O2 -mfunction-return=thunk -mindirect-branch=thunk -fno-plt",
                     "-O2 -mfunction-return=thunk-inline -mindirect-branch=thunk-inline",
                     "-O2 -mharden-sls=all -fcf-protection"),
             "clang": ("-O2 -mlvi-cfi", "-O1 -mlvi-hardening", "-O2 -mretpoline",
                       "-O1 -mspeculative-load-hardening")}


class Subject:
    """A program, and lists of arguments for it."""

    def __init__(self, program, runs, hides=False):
        self.program = program
        self.modules = [os.path.realpath(program)]  # whose counts are compared
        self.runs = runs
        self.hides = hides  # something that Tally may name instead of counting it
        # Callgrind takes code behind a change of stacks for that of another module, now and then.
        self.is_counted = True
        self.callgrind_options = ()
        self.timers_us = []  # how often a signal may come in runs under Tally
        self.apart = set()  # (module, address) that is executed more often where signals come
        self.in_children = set()  # what children execute as often as their parent


def command_line(parts):
    return [str(part) for part in parts]


def make(folder, parts):
    subprocess.run(command_line(parts), check=True, capture_output=True, timeout=TIMEOUT_S,
                   cwd=folder)


def write_sources(folder, assembly, main):
    (folder / "flow.S").write_text(assembly, encoding="ascii")
    (folder / "main.c").write_text(main, encoding="ascii")


def two_runs(rng, calls_max, fuel_max):
    """Two lists of arguments: random bits and fuel for each call."""
    runs = []
    for _ in range(2):
        calls = [(rng.getrandbits(60), rng.randrange(200, fuel_max))
                 for _ in range(rng.randrange(1, calls_max + 1))]
        runs.append([str(number) for call in calls for number in call])
    return runs


def flow(seed, folder):
    """A program of random_flow.py."""
    rng = random.Random(f"flow {seed}")
    made = random_flow.Program(seed)
    write_sources(folder, made.text(), random_flow.MAIN)
    program = folder / "program"
    # Functions are bound at the start: of several threads each might do it, or the first alone.
    options = ["-O1", f"-DTHREADS={int(made.threads)}", "-pthread", "-Wl,-z,now"]
    options += ([] if made.position_independent else ["-no-pie"])
    options += ["-s"] if made.stripped else []
    make(folder, ["gcc", *options, folder / "main.c", folder / "flow.S", "-o", program])
    # Translating procedures again at each request takes long where stacks are deep.
    return Subject(program, two_runs(rng, 3, 1500 if made.threads else 4000), made.hides)


def addresses_of(path, symbol, end=None):
    """(module, address) of what a symbol names, or of all up to another symbol."""
    listed = subprocess.run(["nm", "-S", path], capture_output=True, text=True, check=True).stdout
    fields = {line.split()[-1]: line.split() for line in listed.splitlines()}
    start = int(fields[symbol][0], 16)
    stop = int(fields[end][0], 16) if end else start + int(fields[symbol][1], 16)
    return {(os.path.realpath(path), address) for address in range(start, stop)}


def wild(seed, folder):
    """A program of random_wild.py."""
    rng = random.Random(f"wild {seed}")
    made = random_wild.Program(seed)
    around = made.surroundings
    library, program = folder / "flow.so", folder / "program"
    write_sources(folder, made.text(), random_wild.MAIN)
    kind = [] if made.position_independent else ["-no-pie"]
    when = "-Wl,-z,lazy" if around.binds_late else "-Wl,-z,now"
    assembly = folder / "flow.S"
    if around.library:
        make(folder, ["gcc", "-shared", when, assembly, "-o", library])
        assembly = "-ldl"
    make(folder, ["gcc", "-O1", "-pthread", when, *kind, *around.definitions(library),
                  folder / "main.c", assembly, "-o", program])
    subject = Subject(program, two_runs(rng, 4, 1500), around.patched)
    subject.is_counted = not made.swaps
    if around.patched:  # code from a file, changed in memory
        subject.callgrind_options = ("--smc-check=all",)
    # Valgrind preloads an object of its own.
    subject.apart = set().union(*(addresses_of(program, name)
                                  for name in ("on_alarm", "add_code", "note_code")))
    if around.forks:
        subject.in_children = addresses_of(program, "flow", "flow_end")
    if around.library:
        subject.modules.append(os.path.realpath(library))
    if around.alarmed:
        subject.timers_us = [rng.randrange(200, 3000) for _ in range(3)]
    if made.stripped:
        make(folder, ["strip", program])
    return subject


def csmith(seed, folder):
    """A program of csmith's."""
    rng = random.Random(f"csmith {seed}")
    source, program = folder / "random.c", folder / "program"
    options = rng.sample(CSMITH_OPTIONS, 3)
    make(folder, ["csmith", "--seed", seed + 1, "--max-funcs", rng.randrange(3, 12), *options,
                  "--output", source])
    compiler = rng.choice(("gcc", "gcc", "clang")) if shutil.which("clang") else "gcc"
    chosen = rng.choice(C_OPTIONS + HARDENING[compiler]).split()
    chosen += rng.choice(([], [], ["-no-pie"], ["-s"]))
    if compiler == "clang":
        chosen = [o for o in chosen if not o.startswith(("-fno-tree", "-fsanitize"))]
    make(folder, [compiler, "-w", "-I/usr/include/csmith", *chosen, source, "-o", program])
    return Subject(program, [[], ["1"]])  # with `1` it prints more


KINDS = {"flow": flow, "wild": wild, "csmith": csmith}


def faulting(path):
    """Link addresses of `ud2`, which callgrind counts when they fault; they are never executed."""
    text = subprocess.run(["objdump", "-d", "-w", "--no-show-raw-insn", path],
                          capture_output=True, text=True, check=True).stdout
    return {(path, int(line.split(":")[0], 16))
            for line in text.splitlines() if line.rstrip().endswith("\tud2")}


class Truth:
    """What a run does natively and under callgrind."""

    def __init__(self, subject, arguments, folder):
        command = command_line([subject.program, *arguments])
        native = processes.run(command, folder, "native", TIMEOUT_S)
        self.end, self.stdout, self.problems = native.end(), native.stdout, []
        self.counts = {}
        self.is_short = native.seconds < NATIVE_MAX_S and native.end() != "timeout"
        if not self.is_short:
            return
        # Children write to the same file, but end before their parent.
        there, counted = callgrind.run(command, folder, None, dict(processes.ENVIRONMENT),
                                       subject.callgrind_options)
        if (there.end(), there.stdout) != (self.end, self.stdout):
            self.problems.append("callgrind and the processor disagree on what the program does")
        never = set().union(*(faulting(module) for module in subject.modules))
        # Behind a return that is no plain one callgrind takes other code for the module's.
        code = {module: callgrind.executable_sections(module) for module in subject.modules}
        self.counts = {(module, at): n for (module, at), n in counted.counts.items()
                       if n and (module, at) not in never
                       and any(start <= at < end for start, end in code.get(module, ()))}
        self.total = sum(self.counts.values())


def counts(tally, file, subject, *options):
    """By (module, address)."""
    dump = subprocess.run([tally, "dump", "instructions", file, "--format=csv", *options],
                          capture_output=True, check=True)
    return {key: n for key, n in against_callgrind.rows(dump.stdout.decode().splitlines()).items()
            if key[0] in subject.modules and n}


def under_tally(tally, subject, arguments, folder, cache, options, truth, timer_us=None):
    """What is wrong with one run under Tally."""
    file = folder / "run.tally"
    line = command_line([tally, "profile", "-o", file, *options, "--", subject.program, *arguments])
    env = dict(processes.ENVIRONMENT, TALLY_CACHE=str(cache))
    done = processes.run(line, folder, "tally", TIMEOUT_S, env=env)
    if timer_us:
        env["TIMER_US"] = str(timer_us)
    what = f"{' '.join(options)} {' '.join(arguments)}".strip()
    what += f" with a signal each {timer_us} us" if timer_us else ""
    if (done.end(), done.stdout) != (truth.end, truth.stdout):
        said = done.stderr.decode(errors="replace")[:400]
        return [f"{what}: {done.end()} instead of {truth.end}, or another output: {said}"]
    if not subject.is_counted:
        return []
    report = json.loads(subprocess.run([tally, "report", file, "--format=json"],
                                       capture_output=True, check=True).stdout)
    if subject.hides and any(
            name in issue["message"] for issue in report["issues"] for name in NAMED):
        return []
    problems = []
    if report["flow"]["balanced"] is not True or report["issues"]:
        problems.append(f"{what}: not balanced, or not exact: {report['issues']}")
    ours = counts(tally, file, subject)
    if subject.in_children:
        everybody, ours = ours, counts(tally, file, subject, "--run=1")
        for key in sorted(subject.in_children):
            if everybody.get(key, 0) != 2 * ours.get(key, 0):
                problems.append(f"{what}: {key[1]:#x}: {everybody.get(key, 0)} in all processes, "
                                f"{ours.get(key, 0)} in the first")
    left_out = {(module, a) for module in subject.modules for a in callgrind.rep_prefixed(module)}
    left_out |= subject.apart
    for key in sorted((set(ours) | set(truth.counts)) - left_out):
        here, there = ours.get(key, 0), truth.counts.get(key, 0)
        if here != there:
            problems.append(f"{what}: {os.path.basename(key[0])} {key[1]:#x}: tally {here}, "
                            f"callgrind {there}")
    return problems[:8]


def plans(rng):
    """(folder of what was left, run, options): a first run and what follows it, then odd ones."""
    yield "left", 0, ()
    yield "left", 0, ()
    yield "left", 0, ()
    yield "left", 1, ()
    yield "left", 1, ()
    yield "renewed", 0, ("--stress-renewal",)
    yield "deferred", 1, ("--stress-defer", "--stress-index")
    yield "deferred", 0, ("--stress-defer",)
    off = ",".join(sorted(rng.sample(OPTIMIZATIONS, rng.randrange(1, 5))))
    yield "few", 0, (f"--no-opt={off}",)
    yield "few", 0, (f"--no-opt={off}", "--stress-renewal")
    yield "few", 1, (f"--no-opt={off}",)
    yield "blocks", 0, ("--placement=blocks",)


def check(tally, kind, seed, folder):
    """Problems of one program, and how many instructions the truth has; None for one that is left
    out, since it runs for long."""
    folder = pathlib.Path(folder).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subject = KINDS[kind](seed, folder)
    truths = [Truth(subject, arguments, folder) for arguments in subject.runs]
    if not all(truth.is_short for truth in truths):
        return None, 0
    problems = [problem for truth in truths for problem in truth.problems]
    if not problems:
        ways = list(plans(random.Random(f"plans {kind} {seed}")))
        timers = [None] * len(ways) + subject.timers_us
        ways += ways[:len(subject.timers_us)]
        for (cache, run, options), timer_us in zip(ways, timers):
            problems += under_tally(tally, subject, subject.runs[run], folder, folder / cache,
                                    options, truths[run], timer_us)
    return problems, sum(truth.total for truth in truths)
