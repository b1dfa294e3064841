#!/usr/bin/env python3
"""LLVM sample profiles that LLVM's own tools wrote: read, checked without a run, verified.

Branch records need a processor that has them and a machine that shows them.  Here the branches of
a run are recorded by single-stepping (tests/verify/step_trace.c), written as `perf script` would
write them, and given to llvm-profgen, which makes the profile; clang takes it
(-fprofile-sample-use), llvm-profdata writes it again.  All behind the branch records is real.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys

import processes
from verifying import SOURCES, TALLY, WORK, expect, finish

STACK = 16  # entries of a branch stack


def tool(name):
    found = shutil.which(name) or next((p for n in range(22, 13, -1)
                                        if (p := shutil.which(f"{name}-{n}"))), None)
    if found is None:
        print(f"no {name}: skipped")
        sys.exit(77)
    return found


def sh(*command, **more):
    done = subprocess.run([str(c) for c in command], cwd=WORK, capture_output=True, check=False,
                          timeout=250, **more)
    if done.returncode != 0:
        raise SystemExit(f"{command}: status {done.returncode}: {done.stderr.decode()[-600:]}")
    return done.stdout


def build():
    """The program as a sampling build has it, its instructions' sizes and where main is."""
    program = os.path.join(WORK, "sampled")
    sh(tool("clang"), "-O2", "-gline-tables-only", "-fdebug-info-for-profiling", "-fno-pie",
       "-no-pie", "-fno-unroll-loops", "-fno-vectorize", os.path.join(SOURCES, "sampled.c"), "-o",
       program)
    listing = sh("objdump", "-d", "--no-show-raw-insn", program).decode()
    addresses = [int(m, 16) for m in re.findall(r"^ *([0-9a-f]+):\t", listing, re.M)]
    following = dict(zip(addresses, addresses[1:]))
    main = int(re.search(r"^([0-9a-f]+) <main>:", listing, re.M).group(1), 16)
    return program, following, main


def trace_of(program, main):
    stepper = os.path.join(WORK, "step_trace")
    sh("gcc", "-O1", os.path.join(SOURCES, "step_trace.c"), "-o", stepper)
    data = sh(stepper, hex(main), program)
    return struct.unpack(f"<{len(data) // 8}Q", data)


def perf_script(program, following, trace, every=1):
    """What `perf script -F ip,brstack --show-mmap-events` prints; newest branches first."""
    segments = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True,
                              check=True).stdout
    offset, address, size = next((int(m[0], 16), int(m[1], 16), int(m[2], 16)) for m in re.findall(
        r"LOAD +(0x\w+) (0x\w+) 0x\w+ 0x\w+ (0x\w+) R E", segments))
    lines = [f"PERF_RECORD_MMAP2 77/77: [{address:#x}({(size + 4095) & ~4095:#x}) @ {offset:#x} "
             f"08:01 7 0]: r-xp {program}"]
    branches = [(a, b) for a, b in zip(trace, trace[1:]) if following.get(a) != b]
    # Inside of libraries nothing is known of sizes: what goes on there is no branch of ours.
    branches = [(a, b) for a, b in branches if a in following or b in following]
    for end in range(STACK, len(branches) + 1, STACK * every):
        stack = branches[end - STACK:end]
        entries = " ".join(f"{a:#x}/{b:#x}/P/-/-/0" for a, b in reversed(stack))
        lines.append(f"{stack[-1][1]:x} {entries}")
    return "\n".join(lines) + "\n"


def write(name, text):
    path = os.path.join(WORK, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def check(file, program, label, status=0):
    done = processes.run([TALLY, "check", file, "--program=" + program, "--format=json"], WORK,
                         label, 60, cwd=WORK)
    expect(done.status == status, f"check of {label}: {done.end()} {done.stderr[-300:]}")
    return json.loads(done.stdout) if done.stdout else {}


def verify(file, program, label, *options):
    result = os.path.join(WORK, label + ".json")
    done = processes.run([TALLY, "verify", "--profile=" + file, "--format=json", "-o", result,
                          *options, "--", program], WORK, label, 120, cwd=WORK)
    if not os.path.exists(result):
        expect(False, f"verify of {label}: {done.end()} {done.stderr[-300:]}")
        return done, {"verified": False, "overlap": 0, "procedures": {"judged": 0}}
    with open(result, encoding="utf-8") as f:
        return done, json.load(f)


def judged(file, program, label):
    report = check(file, program, label)
    expect(report.get("claims", {}).get("procedures", 0) >= 3, f"{label}: few procedures")
    done, verdict = verify(file, program, label)
    print(f"{label}: overlap {verdict['overlap']:.3f}", flush=True)
    expect(done.status == 0 and verdict["verified"], f"{label}: not verified: {verdict}")
    expect(verdict["procedures"]["judged"] >= 3, f"{label}: few procedures judged")
    expect(verdict["overlap"] > 0.8, f"{label}: overlap {verdict['overlap']}")


def heaviest_last(text):
    """The same samples, but the functions' totals given to each other in reverse order."""
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if line and line[0] not in " ["]
    totals = [lines[i].rsplit(":", 2) for i in heads]
    order = sorted(range(len(heads)), key=lambda i: int(totals[i][1]))
    changed = {order[i]: totals[order[-1 - i]][1] for i in range(len(order))}
    out = []
    for i, line in enumerate(lines):
        if i in heads:
            name, _, entries = totals[heads.index(i)]
            out.append(f"{name}:{changed[heads.index(i)]}:{entries}")
    return "\n".join(out) + "\n"


def main():
    profgen, profdata = tool("llvm-profgen"), tool("llvm-profdata")
    program, following, start = build()
    trace = trace_of(program, start)
    print(f"{len(trace)} instructions stepped", flush=True)
    for label, every in (("every branch", 1), ("each fourth stack", 4)):
        name = label.split()[0]
        stacks = write(name + ".perf", perf_script(program, following, trace, every))
        file = os.path.join(WORK, name + ".prof")
        sh(profgen, "--binary=" + program, "--perfscript=" + stacks, "--format=text",
           "--output=" + file)
        judged(file, program, label)
        sh(tool("clang"), "-O2", "-gline-tables-only", "-fdebug-info-for-profiling",
           "-fprofile-sample-use=" + file, "-c", os.path.join(SOURCES, "sampled.c"), "-o",
           os.path.join(WORK, "used.o"))
    again = os.path.join(WORK, "again.prof")
    sh(profdata, "merge", "--sample", "--text", file, file, "-o", again)
    judged(again, program, "written by llvm-profdata")
    with open(again, encoding="utf-8") as f:
        text = f.read()
    done, verdict = verify(write("reversed.prof", heaviest_last(text)), program, "reversed",
                           "--overlap-min=0.8")
    expect(done.status == 1 and verdict["findings"][0]["kind"] == "share",
           f"reversed totals: {done.end()}, overlap {verdict['overlap']}")
    binary = os.path.join(WORK, "binary.prof")
    sh(profdata, "merge", "--sample", "--extbinary", file, "-o", binary)
    done = processes.run([TALLY, "check", binary, "--program=" + program], WORK, "binary", 60,
                         cwd=WORK)
    expect(done.status == 125 and b"--text" in done.stderr, f"binary: {done.end()} {done.stderr}")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
