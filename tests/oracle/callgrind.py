"""Per-instruction counts of `valgrind --tool=callgrind`, to compare with.

Callgrind shares nothing with Tally but the processor's manual.  Differences that are known, and how
they are handled:

  * A `rep` string instruction counts once per iteration there.  Such addresses (found by
    disassembling with objdump) are left out of the comparison and counted.
  * Sections other than .text (.plt, .init, ...) appear under "ob=???" with addresses as they were
    at run time.  Valgrind's log says where it put each module (link and run-time address of its
    .text), which tells whose they are; what is in no module (generated code) is left out.
  * ld.so and libc differ: valgrind preloads an object of its own, redirects functions, and hides
    features of the processor.  Only modules asked for are compared.

Callgrind names and numbers may be compressed: "fn=(3) name" then "fn=(3)", and "+4", "-2", "*"
relative to the line before.  Both are understood, for files written with other options.
"""
import os
import re
import subprocess

import processes

READING = re.compile(r"^--\d+-- Reading syms from (/.*?)\s*$")
PLACED = re.compile(r"^--\d+--\s+svma 0x([0-9a-f]+), avma 0x([0-9a-f]+)")
PREFIXED = re.compile(r"^\s*([0-9a-f]+):\s.*\t(?:[a-z0-9.]+ )*rep[nez]* ")


class Callgrind:
    """Counts by (module path, link address)."""

    def __init__(self, path, log):
        self.sections = list(placed_sections(log))
        self.names = {}
        self.counts = {}
        self.parse(path)

    def parse(self, path):
        module, last, skip = "???", 0, False
        with open(path, encoding="utf-8", errors="replace") as f:
            for line in f:
                first = line[:1]
                if line.startswith("ob="):
                    module = self.name(line[3:].strip())
                elif line.startswith("cob="):
                    self.name(line[4:].strip())
                elif line.startswith("calls="):
                    skip = True  # the next line is the callee's inclusive cost
                elif skip:
                    skip = False  # and no position that others are relative to
                elif first in "0123456789+-*":
                    fields = line.split()
                    last = position(fields[0], last)
                    self.add(module, last, int(fields[1]) if len(fields) > 1 else 0)

    def name(self, text):
        """Resolves "(7) name" and "(7)"."""
        match = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not match:
            return text
        if match[2]:
            self.names[match[1]] = match[2]
        return self.names[match[1]]

    def add(self, module, address, count):
        if module == "???":
            for start, end, base, owner in self.sections:
                if start <= address < end:
                    module, address = owner, address - base
                    break
            else:
                return
        key = (module, address)
        self.counts[key] = self.counts.get(key, 0) + count


def position(text, last):
    if text == "*":
        return last
    if text[0] in "+-":
        return last + int(text, 0)
    return int(text, 16)


def placed_sections(log):
    """Executable sections as valgrind's log places them: (start, end, load address, module)."""
    module = None
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            reading = READING.match(line)
            placed = PLACED.match(line)
            if reading:
                module = os.path.realpath(reading[1])
            elif placed and module:
                base = int(placed[2], 16) - int(placed[1], 16)
                for start, end in executable_sections(module):
                    yield start + base, end + base, base, module
                module = None


def executable_sections(program):
    text = subprocess.run(["readelf", "-SW", program], capture_output=True, text=True, check=True)
    found = []
    row = re.compile(r"\s*\[ *\d+\] (\S+)\s+\S+\s+([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+) \S+ +(\S+)")
    for line in text.stdout.splitlines():
        match = row.match(line)
        if match and "X" in match[4]:
            found.append((int(match[2], 16), int(match[2], 16) + int(match[3], 16)))
    return found


def rep_prefixed(module):
    """Link addresses of string instructions with a rep prefix."""
    text = subprocess.run(
        ["objdump", "-d", "-w", module], capture_output=True, text=True, check=True
    )
    out = set()
    for line in text.stdout.splitlines():
        match = PREFIXED.match(line)
        if match and "ret" not in line.rsplit("\t", 1)[-1]:
            out.add(int(match[1], 16))
    return out


def environment(folder):
    """What a program sees under valgrind, to be given to it under Tally, too."""
    done = processes.run(
        ["/usr/bin/valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "-q"]
        + ["/usr/bin/env", "-0"],
        folder,
        "environment",
        60,
    )
    return dict(item.split("=", 1) for item in done.stdout.decode().split("\0") if item)


def run(command, folder, stdin=None, env=None, more=()):
    """Runs the command under callgrind, with `more` options: (outcome, counts)."""
    out = os.path.join(folder, "callgrind.out")
    log = os.path.join(folder, "valgrind.log")
    options = [*more, "--tool=callgrind", "--dump-instr=yes", "--dump-line=no", "--skip-plt=no"]
    options += ["-v", "-v", "--log-file=" + log, "--callgrind-out-file=" + out]
    done = processes.run(
        ["/usr/bin/valgrind"] + options + command, folder, "callgrind", 300, stdin=stdin, env=env
    )
    if not os.path.exists(out):
        raise RuntimeError("callgrind left no file: " + done.stderr.decode(errors="replace"))
    return done, Callgrind(out, log)
