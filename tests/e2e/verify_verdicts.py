#!/usr/bin/env python3
"""`tally verify`: what is right is verified, what is wrong is found and named, for each way to ask.

  damaged        an edge whose count is off by one, a missing edge, an invented one
  figure 2       GCC's instrumentation moves the table: gcov's profile is wrong, Tally's is not
  canon_hash     the same with addresses of the heap
  by_time        differences of the program's own are told from those of the profile
  progress       a terminal shows how much is done
  endless        a budget ends a program that does not end; ^C shows what is known
  hot_threads    with a budget, threads go over to the cold blocks, and lose nothing of them
  by_chance      with threads, runs that agree are no evidence where code looks at other threads
  by_pool        ... nor what threads take from each other, however far above that is
  seeded         many counts of a program with threads are off: each is found
  by_clock       ... nor where the time or random numbers decide
  by_signal      ... nor where signals come at a time of their own
  by_tracer      ... and who looks for a tracer is named
  inlined_twice  a count that gcov loses
  refusals       exit statuses and one line for each kind of bad input
"""
import glob
import gzip
import json
import os
import pty
import random
import re
import signal
import subprocess
import sys
import time

import processes
from verifying import (SOURCES, TALLY, WORK, expect, finish, plain_edges, ranges_of, run,
                       write_plain)


def compile_program(name, *flags, source=None):
    path = os.path.join(WORK, name)
    source = os.path.join(SOURCES, (source or name) + ".c")
    command = ["gcc", "-O0", "-g", "-no-pie", source, "-o", path, *flags]
    subprocess.run(command, check=True, cwd=WORK)
    return path


def profile(program, file):
    done = run([TALLY, "profile", "-o", file, "--", program], "profile")
    expect(done.status == 0, f"profile of {program}: {done.end()}")


def verify(program, file, label, *options):
    result = os.path.join(WORK, label + ".json")
    command = [TALLY, "verify", "--profile=" + file, "--format=json", "-o", result, *options]
    done = run(command + ["--", program], label)
    verdict = None
    if os.path.exists(result):
        with open(result, encoding="utf-8") as f:
            verdict = json.load(f)
    return done, verdict


def damaged(program, file):
    edges = plain_edges(file, program)
    done, verdict = verify(program, write_plain(edges, "whole"), "whole", "--engine=trap")
    expect(done.status == 0 and verdict["verified"], "the undamaged edges are not verified")
    hot = max(edges, key=edges.get)
    for delta in (1, -1):
        wrong = dict(edges)
        wrong[hot] += delta
        done, verdict = verify(program, write_plain(wrong, "off"), "off", "--engine=trap")
        found = [f for f in verdict["findings"] if f["kind"] == "edge count"]
        expect(done.status == 1 and len(verdict["findings"]) == 1, f"{delta}: not one finding")
        expect(found and found[0]["claimed"] - found[0]["counted"] == delta, f"{delta}: residue")
        expect(found and int(found[0]["address"], 16) == int(hot[0], 16), f"{delta}: address")
        expect(found and found[0]["reason"] == "wrong", f"{delta}: reason")
        expect(found and "line" in found[0].get("record", ""), f"{delta}: no line of the profile")
    without = dict(edges)
    del without[hot]
    done, verdict = verify(program, write_plain(without, "less"), "less", "--engine=trap")
    kinds = [f["kind"] for f in verdict["findings"]]
    expect(done.status == 1 and kinds == ["missing edge"], f"a missing edge gives {kinds}")
    more = dict(edges)
    more[(hot[0], hex(int(hot[1], 16) + 1))] = 3
    done, verdict = verify(program, write_plain(more, "more"), "more", "--engine=trap")
    expect(done.status == 1 and verdict["findings"], "an invented edge is not found")


def gcov_of(name, *flags):
    """Runs the instrumented program; returns its profile and what it printed."""
    folder = os.path.join(WORK, "cov-" + name)
    os.makedirs(folder, exist_ok=True)
    source = os.path.join(SOURCES, name + ".c")
    build = ["gcc", "-O0", "-g", "-no-pie", "--coverage", source, "-o", name, *flags]
    subprocess.run(build, check=True, cwd=folder)
    for old in [n for n in os.listdir(folder) if n.endswith(".gcda")]:
        os.unlink(os.path.join(folder, old))
    done = processes.run([os.path.join(folder, name)], folder, "covered", 60, cwd=folder)
    data = next(n for n in os.listdir(folder) if n.endswith(".gcda"))
    subprocess.run(["gcov", "--json-format", data], check=True, cwd=folder, capture_output=True)
    file = next(n for n in os.listdir(folder) if n.endswith(".gcov.json.gz"))
    return os.path.join(folder, file), done.stdout


def moved_by_instrumentation(name, flags_of):
    """A build whose instrumented twin takes another way."""
    for flags in flags_of:
        program = compile_program(name, *flags)
        covered, printed = gcov_of(name, *flags)
        native = run([program], "native-" + name)
        if printed != native.stdout:
            return program, covered
    raise SystemExit("no padding makes the instrumented program behave otherwise")


def made_by(program, covered, label, engine):
    """What the build that was counted in does itself is excused, a damaged count is not."""
    maker = "--made-by=" + os.path.join(os.path.dirname(covered), os.path.basename(program))
    done, verdict = verify(program, covered, label + "-made-by", engine, maker)
    reasons = {f["reason"] for f in verdict["findings"] if f["kind"] == "line count"}
    expect(done.status == 1 and reasons == {"environment"}, f"{label}, made by: {reasons}")
    if "canon_hash" in label:  # whose counts depend on addresses in any run
        return
    with gzip.open(covered) as f:
        whole = json.load(f)
    place = verdict["findings"][0]["where"].rsplit(":", 1)[1]
    for line in whole["files"][0]["lines"]:
        if line["line_number"] == int(place):
            line["count"] += 1
    damaged_file = os.path.join(WORK, label + ".gcov.json")
    with open(damaged_file, "w", encoding="utf-8") as f:
        json.dump(whole, f)
    done, verdict = verify(program, damaged_file, label + "-damaged", engine, maker)
    wrong = [f["where"] for f in verdict["findings"] if f["reason"] == "wrong"]
    expect(any(w.endswith(":" + place) for w in wrong), f"{label}, damaged {place}: {wrong}")


def shifted(name, flags_of):
    program, covered = moved_by_instrumentation(name, flags_of)
    for engine in ("trap", "translate"):
        label = f"{name}-gcov-{engine}"
        done, verdict = verify(program, covered, label, "--engine=" + engine)
        expect(done.status == 1, f"{label}: {done.end()} {done.stderr[-300:]}")
        expect(verdict and verdict["lines"]["judged"] > 3, f"{label}: few lines judged")
        wrong = [f for f in verdict["findings"] if f["kind"] == "line count"] if verdict else []
        expect(wrong, f"{label}: no line is wrong")
        folder = os.path.dirname(covered)
        data = [os.stat(f).st_mtime_ns for f in sorted(glob.glob(folder + "/*.gcda"))]
        made_by(program, covered, label, "--engine=" + engine)
        now = [os.stat(f).st_mtime_ns for f in sorted(glob.glob(folder + "/*.gcda"))]
        expect(data and data == now, f"{label}: the counts on the disk have changed")
    file = os.path.join(WORK, name + ".tally")
    profile(program, file)
    for engine in ("trap", "translate"):
        done, verdict = verify(program, file, f"{name}-{engine}", "--engine=" + engine)
        expect(done.status == 0 and verdict["verified"], f"{name}: Tally's own, {engine}")


def by_itself():
    program = compile_program("by_time")
    file = os.path.join(WORK, "by_time.tally")
    profile(program, file)
    done, verdict = verify(program, file, "by_time")
    reasons = {f["reason"] for f in verdict["findings"]}
    expect(done.status == 1 and reasons == {"nondeterministic"}, f"by_time: {reasons}")
    done, verdict = verify(program, file, "by_time-once", "--once")
    reasons = {f["reason"] for f in verdict["findings"]}
    expect(reasons == {"unexplained"}, f"by_time, --once: {reasons}")


def without_end():
    program = compile_program("endless")
    whole = compile_program("figure2")
    file = os.path.join(WORK, "figure2.tally")
    profile(whole, file)
    plain = os.path.join(WORK, "endless.edges")
    text = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    main = next(line.split()[0] for line in text.splitlines() if line.endswith(" main"))
    with open(plain, "w", encoding="utf-8") as f:
        f.write(f"{main} {main} 0\n")
    done, verdict = verify(program, plain, "endless", "--engine=trap", "--budget=2s")
    expect(done.status == 1 and not verdict["complete"], f"endless: {done.end()}")
    result = os.path.join(WORK, "interrupted.json")
    command = [TALLY, "verify", "--profile=" + plain, "--engine=trap", "--format=json"]
    command += ["-o", result]
    child = subprocess.Popen(command + ["--", program], cwd=WORK)
    time.sleep(1.5)
    child.send_signal(signal.SIGINT)
    status = child.wait(30)
    expect(status == 1 and os.path.exists(result), f"^C: status {status}")
    with open(result, encoding="utf-8") as f:
        verdict = json.load(f)
    expect(verdict["why_incomplete"] == "interrupted", "^C: " + verdict.get("why_incomplete", ""))


def on_a_terminal(program, file, *options):
    ours, theirs = pty.openpty()
    child = subprocess.Popen([TALLY, "verify", "--profile=" + file, *options, "--", program],
                             cwd=WORK, stderr=theirs, stdout=subprocess.DEVNULL,
                             env=processes.ENVIRONMENT)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    expect(child.wait(60) == 0, f"progress: status {child.returncode}: {said[-300:]}")
    return said


def progress():
    """On a terminal: which share of the run is done, and how long the rest takes."""
    program = compile_program("busy")
    file = os.path.join(WORK, "busy.tally")
    profile(program, file)
    said = on_a_terminal(program, file)
    shares = [float(s) for s in re.findall(rb"([0-9.]+)% of the run, [0-9]+ s, about [0-9]+ s left",
                                           said)]
    expect(len(shares) > 1 and shares == sorted(shares) and 1 < shares[-1] <= 100,
           f"progress: {shares} {said[-300:]}")
    said = on_a_terminal(program, file, "--engine=translate")
    expect(b"tally: translated run 1, " in said, f"progress, translated: {said[-300:]}")


def budget(program, file):
    done, verdict = verify(program, file, "budget", "--budget=300ms")
    expect(done.status == 0 and verdict["verified"], "with a budget it is not verified")
    said = [r for r in verdict["remarks"] if r.startswith("budget:")]
    expect(len(said) == 1, "the budget is not mentioned")


def budget_with_threads():
    program = compile_program("hot_threads", "-O1", "-pthread")
    file = os.path.join(WORK, "hot_threads.tally")
    profile(program, file)
    done, verdict = verify(program, file, "hot", "--budget=2s")
    expect(done.status in (0, 1) and verdict, f"threads under a budget: {done.end()}")
    expect(verdict["complete"] and verdict["threads"] == 4, "threads under a budget: not done")
    expect(verdict["lost"] == 0, "threads under a budget: " + verdict.get("first_lost", ""))
    said = [r for r in verdict["remarks"] if r.startswith("budget:")]
    expect(len(said) == 1, "threads under a budget: not mentioned")
    # What pthread_join and its like do differs by itself; the program does not.
    own = [f for f in verdict["findings"] if f["module"] == program]
    expect(not own, f"threads under a budget: {own[:3]}")
    edges = plain_edges(file, program)
    label = "hot-whole"
    plain = write_plain(edges, label)
    done, verdict = verify(program, plain, label, "--engine=trap", "--budget=2s")
    expect(done.status == 0 and verdict["verified"], f"{label}: {verdict['findings'][:3]}")
    edges_cold = [e for e in edges if 3 <= edges[e] <= 9]
    for edge in edges_cold[:: max(1, len(edges_cold) // 3)]:
        wrong = dict(edges)
        wrong[edge] += 1
        label = "hot-off"
        done, verdict = verify(program, write_plain(wrong, label), label, "--engine=trap",
                               "--budget=2s")
        found = [(f["address"], f["claimed"] - f["counted"]) for f in verdict["findings"]]
        expect(done.status == 1 and found == [(edge[0], 1)], f"{label} {edge}: {found}")


def rarely(name):
    """The program whose threads rarely do what they can; its edges and where its procedures lie."""
    program = compile_program("rarely", "-O1", "-pthread")
    file = os.path.join(WORK, name + ".tally")
    profile(program, file)
    return program, plain_edges(file, program), ranges_of(program)


def by_chance():
    """What a run rarely does is claimed: right or wrong, several runs that agree do not show it."""
    program, edges, ranges = rarely("rarely")

    def within(procedure):
        begin, end = ranges[procedure]
        return [e for e in edges if all(begin <= int(a, 16) < end for a in e)]

    def reasons(label, edge, *options):
        changed = dict(edges)
        changed[edge] += 1
        done, verdict = verify(program, write_plain(changed, label), label, *options)
        expect(done.status == 1, f"{label}: {done.end()}")
        return [(f["reason"], f["evidence"]) for f in verdict["findings"]]

    for engine in ("trap", "translate"):
        for procedure in ("take", "watch", "thread", "job", "main"):
            for edge in within(procedure)[:2] if engine == "trap" else within(procedure)[:1]:
                got = reasons(f"rarely-{procedure}-{engine}", edge, "--engine=" + engine)
                expect([r for r, _ in got] == ["scheduling"] and "6 runs agree, but" in got[0][1],
                       f"{engine}: {procedure} {edge}: {got}")
        got = reasons(f"rarely-work-{engine}", within("work")[0], "--engine=" + engine, "--runs=3")
        expect([r for r, _ in got] == ["wrong"] and "3 runs agree, and" in got[0][1],
               f"{engine}: work: {got}")
        got = reasons(f"rarely-once-{engine}", within("work")[0], "--engine=" + engine, "--once")
        expect([r for r, _ in got] == ["unexplained"], f"{engine}, once: {got}")


def by_pool():
    """What is done with what was taken depends on who took it, but not for each byte."""
    program = compile_program("by_pool", "-O1", "-pthread")
    file = os.path.join(WORK, "by_pool.tally")
    profile(program, file)
    edges = plain_edges(file, program)
    ranges = ranges_of(program)
    for procedure, wanted in (("clear", "scheduling"), ("compute", "wrong")):
        begin, end = ranges[procedure]
        own = [e for e in edges if all(begin <= int(a, 16) < end for a in e)]
        changed = dict(edges)
        changed[max(own, key=edges.get)] += 1
        for engine in ("trap", "translate"):
            label = f"by_pool-{procedure}-{engine}"
            done, verdict = verify(program, write_plain(changed, label), label, "--runs=3",
                                   "--engine=" + engine)
            got = [(f["name"], f["reason"]) for f in verdict["findings"]]
            expect(done.status == 1 and got == [(procedure, wanted)], f"{label}: {got}")
            said = "is called below worker, which calls" in verdict["findings"][0]["evidence"]
            expect(said == (wanted == "scheduling"), f"{label}: {verdict['findings'][0]}")


def seeded_with_threads():
    """Many counts of a program with threads are off at once, by a seed: each is found."""
    program, edges, ranges = rarely("seeded")
    begin, end = ranges["work"]
    # How often `work` is called is left alone: if that is claimed otherwise, what it does is, too.
    candidates = sorted(e for e in edges if int(e[1], 16) != begin)
    for seed in range(4):
        chosen = random.Random(seed)
        changed = dict(edges)
        for edge in chosen.sample(candidates, len(candidates) // 3):
            changed[edge] = max(0, edges[edge] + chosen.choice((-3, -1, 1, 2, 1 << 32)))
        wanted = {e: changed[e] - edges[e] for e in edges if changed[e] != edges[e]}
        label = f"seeded-{seed}"
        engine = ("trap", "translate")[seed % 2]
        done, verdict = verify(program, write_plain(changed, label), label, "--engine=" + engine,
                               "--runs=3")
        found = {}
        for f in verdict["findings"]:
            to = hex(int(f["to"].rsplit("+", 1)[1], 16))
            found[(hex(int(f["address"], 16)), to)] = f
        by_number = {tuple(hex(int(a, 16)) for a in e): d for e, d in wanted.items()}
        expect(done.status == 1 and by_number.keys() <= found.keys(),
               f"{label}: not found: {sorted(by_number.keys() - found.keys())}")
        for edge, delta in by_number.items():
            f = found.get(edge)
            if f is None or not all(begin <= int(a, 16) < end for a in edge):
                continue
            expect(f["claimed"] - f["counted"] == delta and f["reason"] == "wrong",
                   f"{label}: {edge} by {delta}: {f}")
        expect(all(f["evidence"] for f in verdict["findings"] if f["reason"] != "structure"),
               f"{label}: a finding without evidence")


def by_clock():
    """What the clock decides is no evidence, what it does not is wrong; both in the same run."""
    program = compile_program("by_clock", "-O1")
    file = os.path.join(WORK, "by_clock.tally")
    profile(program, file)
    edges = plain_edges(file, program)
    ranges = ranges_of(program)
    wanted = (("borrows", "nondeterministic"), ("difference", "nondeterministic"),
              ("work", "wrong"))
    for engine in ("trap", "translate"):
        changed = dict(edges)
        for procedure, _ in wanted:
            begin, end = ranges[procedure]
            edge = next(e for e in edges if all(begin <= int(a, 16) < end for a in e))
            changed[edge] = 7 if procedure == "work" else 1 - min(1, edges[edge])
        label = "by_clock-" + engine
        done, verdict = verify(program, write_plain(changed, label), label, "--engine=" + engine)
        got = sorted((f["name"], f["reason"]) for f in verdict["findings"])
        expect(done.status == 1 and got == sorted(wanted), f"{label}: {verdict['findings']}")
        said = next((f["evidence"] for f in verdict["findings"] if f["name"] == "difference"), "")
        expect("clock_gettime" in said, f"{label}: {said}")


def never_taken(program, procedure):
    """Where the first branch of a procedure that is never entered would go on."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", "--disassemble=" + procedure,
                           program], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines() if line.startswith("  4")]
    branch = next(i for i, row in enumerate(rows) if row[1].startswith("j"))
    return tuple("0x" + rows[i][0].rstrip(":") for i in (0, branch + 1))


def by_signal():
    """What a timer's handler does need not be as often; what the program signals to itself is."""
    program = compile_program("by_signal", "-O1")
    file = os.path.join(WORK, "by_signal.tally")
    profile(program, file)
    edges = plain_edges(file, program)
    ranges = ranges_of(program)

    def hottest(procedure):
        begin, end = ranges[procedure]
        own = [e for e in edges if all(begin <= int(a, 16) < end for a in e)]
        return max(own, key=edges.get)

    def reasons(label, edge, delta, *options):
        changed = dict(edges)
        changed[edge] = changed.get(edge, 0) + delta
        done, verdict = verify(program, write_plain(changed, label), label, *options)
        expect(done.status == 1, f"{label}: {done.end()}")
        return [(f["reason"], f["evidence"]) for f in verdict["findings"]]

    # The loop of `tick` is executed 5 times by the handler, 100 times by others.
    wanted = (("alarmed", 1, "nondeterministic"), ("tick", 50, "nondeterministic"),
              ("tick", -5, "nondeterministic"), ("tick", -6, "wrong"), ("own", 1, "wrong"),
              ("work", 1, "wrong"))
    for procedure, delta, reason in wanted:
        label = f"by_signal-{procedure}{delta:+}"
        got = reasons(label, hottest(procedure), delta, "--engine=trap")
        expect([r for r, _ in got] == [reason], f"{label}: {got}")
        said = reason == "wrong" or "a signal that comes at a time of its own" in got[0][1]
        expect(said, f"{label}: {got}")
    got = reasons("by_signal-told", never_taken(program, "told"), 2, "--engine=trap")
    expect([r for r, _ in got] == ["nondeterministic"], f"by_signal-told: {got}")
    # Under translation nobody knows who sent the signals, and the evidence does not claim to.
    for procedure, reason in (("alarmed", "nondeterministic"), ("own", "nondeterministic"),
                              ("work", "wrong")):
        label = f"by_signal-{procedure}-translate"
        got = reasons(label, hottest(procedure), 1, "--engine=translate")
        expect([r for r, _ in got] == [reason], f"{label}: {got}")
        said = reason == "wrong" or "what sent the signal is not known" in got[0][1]
        expect(said, f"{label}: {got}")


def inlined_twice():
    """gcov loses a line's count to a copy of it that is never executed."""
    program = compile_program("inlined_twice")
    covered, _ = gcov_of("inlined_twice")
    with open(os.path.join(SOURCES, "inlined_twice.c"), encoding="utf-8") as f:
        line = next(n for n, text in enumerate(f, 1) if "gcov says never" in text)
    for engine in ("trap", "translate"):
        done, verdict = verify(program, covered, "inlined-" + engine, "--engine=" + engine)
        got = [(f["where"].rsplit(":", 1)[-1], f["claimed"], f["counted"], f["reason"])
               for f in verdict["findings"]]
        expect(done.status == 1 and got == [(str(line), 0, 46, "wrong")], f"{engine}: {got}")


def by_tracer():
    """A program that does something else when traced: the report names it."""
    program = compile_program("by_tracer", "-O1")
    begin = hex(ranges_of(program)["main"][0])
    claimed = write_plain({(begin, begin): 1}, "by_tracer")
    done, verdict = verify(program, claimed, "by_tracer", "--engine=trap")
    expect(done.status == 1 and any("sees that it is traced" in n for n in verdict["notes"]),
           f"by_tracer: {done.end()} {verdict['notes']}")


def refusals(program, file):
    other = compile_program("other", "-DPAD=4096", source="figure2")
    cases = (
        (2, ["verify", "--profile=" + file]),
        (2, ["verify", "--profile=" + file, "--budget=soon", "--", program]),
        (2, ["verify", "--", program]),
        (127, ["verify", "--profile=" + file, "--", "./no-such-program"]),
        (125, ["verify", "--profile=" + SOURCES + "/figure2.c", "--", program]),
        (125, ["verify", "--profile=/nonexistent", "--", program]),
    )
    for status, arguments in cases:
        done = run([TALLY, *arguments], "refused")
        lines = done.stderr.decode().strip().splitlines()
        expect(done.status == status, f"{arguments[1:3]}: status {done.end()}, not {status}")
        expect(len(lines) == 1 and lines[0].startswith("tally: "), f"{arguments[1:3]}: {lines}")
    with open(file, "rb") as f:
        whole = f.read()
    for percent in (10, 50, 99):
        cut = os.path.join(WORK, "cut.tally")
        with open(cut, "wb") as f:
            f.write(whole[: len(whole) * percent // 100])
        done = run([TALLY, "verify", "--profile=" + cut, "--", program], "cut")
        expect(done.status == 125 and b"cut short" in done.stderr and not done.stdout,
               f"{percent} % of a profile: {done.end()} {done.stderr}")
    done = run([TALLY, "verify", "--profile=" + file, "--", other], "other")
    expect(done.status not in (0, None) and len(done.stderr.strip().splitlines()) == 1,
           f"a profile of another program: {done.end()} {done.stderr}")


def main():
    program = compile_program("figure2")
    file = os.path.join(WORK, "first.tally")
    profile(program, file)
    damaged(program, file)
    budget(program, file)
    refusals(program, file)
    shifted("figure2", [()] + [(f"-DPAD={n * 64}",) for n in range(1, 30)])
    shifted("canon_hash", [(f"-DPAD={n * 256}",) for n in range(1, 20)])
    by_itself()
    progress()
    by_chance()
    by_pool()
    seeded_with_threads()
    by_clock()
    by_signal()
    by_tracer()
    inlined_twice()
    without_end()
    budget_with_threads()
    return finish()


if __name__ == "__main__":
    sys.exit(main())
