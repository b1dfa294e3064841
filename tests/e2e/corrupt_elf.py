#!/usr/bin/env python3
"""Truncated and damaged programs: what the kernel still runs, runs the same under Tally or is
refused in one line as damaged; what it does not run, is refused in one line.  Unwind tables,
symbols and notes are hints: garbage in them costs time, never correctness."""
import json
import os
import random
import subprocess

import processes
import refusal
from refusal import WORK, accepted, compile_c, finish, path, profile, run

contents = set()  # programs whose headers are sound: no excuse for a refusal
SOURCE = r"""
#include <stdio.h>
int f(int n) { switch (n % 9) { case 0: return 3; case 1: return n; case 2: return 7; case 3:
 return n / 2; case 4: return 1; case 5: return n * n; case 6: return 2; default: return 0; } }
int main(void) { long s = 0; for (int i = 0; i < 1000; i++) s += f(i); printf("%ld\n", s); }
"""
program = compile_c("good", SOURCE, "-static")
with open(program, "rb") as f:
    good = f.read()


def compare(name, data):
    """Natively and under Tally it must end the same way; or Tally refuses what cannot start."""
    with open(path(name), "wb") as f:
        f.write(data)
    os.chmod(path(name), 0o755)
    try:
        native = processes.run([path(name)], WORK, "native", 10)
    except OSError:
        native = None
    starts = native and native.status not in (126, 127)  # setarch says so when exec fails
    done = run(profile(name + ".tally", path(name)), name + " (signal allowed)")
    said = done.stderr.decode(errors="replace")
    if starts:
        # Tally needs sound headers and says so; it must not need anything else.
        named = "the file is cut short or damaged" in said and not done.stdout
        refused = done.status in (125, 126) and len(said.splitlines()) == 1
        refused = refused and (named or native.signal)
        same = done.end() == native.end() and done.stdout == native.stdout
        if not same and (not refused or name in contents):
            refusal.complain(f"{name}: {done.end()}, natively {native.end()}: {said[-300:]}")
    elif done.status not in (125, 126) or len(said.splitlines()) != 1:
        refusal.complain(f"{name}: cannot start; tally: {done.end()}: {said[-300:]}")


def sections():
    text = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True)
    for line in text.stdout.splitlines():
        fields = line.replace("[ ", "[").split()
        if len(fields) > 6 and fields[0].startswith("[") and fields[1].startswith("."):
            yield fields[1], int(fields[4], 16), int(fields[5], 16)


for size in (1, 4, 20, 63, 64, 100, 400, 4096, 5000, len(good) // 2, len(good) - 1):
    compare(f"cut_{size}", good[:size])
random.seed(7)
read_early = ".eh_frame .eh_frame_hdr .symtab .strtab .shstrtab .note.gnu.build-id".split()
for name, offset, size in sections():
    if name in read_early:
        data = bytearray(good)
        data[offset : offset + size] = random.randbytes(size)
        name = "garbage_" + name.strip(".").replace(".", "_")
        contents.add(name)
        compare(name, bytes(data))
header = bytearray(good)
shoff = int.from_bytes(good[40:48], "little")
header[shoff:] = random.randbytes(len(good) - shoff)
compare("garbage_section_headers", bytes(header))
for number in range(12):  # headers, a few bytes at a time
    data = bytearray(good)
    for _ in range(3):
        data[random.randrange(24, 600)] = random.randrange(256)
    compare(f"flipped_{number}", bytes(data))

data = bytearray(good)
for name, offset, size in sections():
    if name.startswith(".eh_frame"):
        data[offset : offset + size] = random.randbytes(size)
with open(path("no_unwind"), "wb") as f:
    f.write(data)
os.chmod(path("no_unwind"), 0o755)
# exit() is called deep in the stack: which calls never came back cannot be known without tables.
accepted(profile("no_unwind.tally", path("no_unwind")), "no unwind tables", quiet=False)
report = accepted(["report", path("no_unwind.tally"), "--format=json"], "report")
if report.status == 0:
    facts = json.loads(report.stdout)
    named = any("no call frame information" in json.dumps(i) for i in facts["issues"])
    if not facts["flow"]["balanced"] and not named:
        refusal.complain("without unwind tables the flow is not balanced, and no reason is named")
finish()
