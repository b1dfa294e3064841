"""The tiny programs: what their header comments say, and how they are built.

A program is one file of tests/programs whose first lines are comments of these forms:

  // Claim: what it shows.
  // build: gcc,clang O0,O2 pie,nopie nolibc     the matrix: every combination; more
                                                  such parts behind a semicolon
  // ci: gcc O2 pie nolibc; clang O0 nopie nolibc  what CI runs (else two are picked)
  // flags: -pthread                             for the compiler
  // dynamic: -static-libgcc                     for the compiler, only when linked dynamically
  // args: one "two words"      // stdin: text   // env: NAME=value
  // expect: status=3   or   signal=SIGSEGV      (status=0 without it)
  // oracle: step | closed | output              step: every count against the single-stepper
  // count: symbol = 1000                        the instruction at symbol ran that often
  // needs: avx                                  a flag of /proc/cpuinfo, else skipped; or `int1`:
                                                  goes on behind that instruction (not on every
                                                  virtual machine)
  // also: shared NAME.c                         a shared object built beside it
  // inexact: why                                Tally must name what it does not count
  // unbalanced: why                             flow need not balance (inexact is named as well)
  // limit: 2000000                              steps for the oracle
  // varies: why                                 counts differ from run to run, but for `count:`

Link modes: nolibc (static, own _start), static (glibc), dynamic.
"""
import functools
import hashlib
import itertools
import os
import re
import shlex
import subprocess
import tempfile
import zlib

COMPILERS = {
    "gcc": {".c": "gcc", ".S": "gcc", ".cpp": "g++"},
    "clang": {".c": "clang", ".S": "clang", ".cpp": "clang++"},
}
LINK = {
    ("nolibc", "pie"): ["-nostdlib", "-static-pie"],
    ("nolibc", "nopie"): ["-nostdlib", "-static", "-no-pie"],
    ("static", "pie"): ["-static-pie"],
    ("static", "nopie"): ["-static", "-no-pie"],
    ("dynamic", "pie"): ["-pie"],
    ("dynamic", "nopie"): ["-no-pie"],
}
KEYS = (
    "Claim build ci flags dynamic args stdin env expect oracle count needs also inexact"
    " unbalanced limit varies"
).split()


class BuildError(Exception):
    pass


class Program:
    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path).rsplit(".", 1)[0]
        self.suffix = os.path.splitext(path)[1]
        self.headers = {}
        self.counts = []
        last = None
        with open(path, encoding="utf-8") as f:
            for line in f:
                if not line.startswith("//"):
                    break
                match = re.match(r"// (\w+): *(.*)", line)
                if match and match[1] in KEYS:
                    last = match[1]
                    if last == "count":
                        symbol, _, number = match[2].partition("=")
                        self.counts.append((symbol.strip(), int(number)))
                    else:
                        self.headers[last] = match[2].strip()
                elif last == "Claim":
                    self.headers["Claim"] += " " + line[2:].strip()
        for wanted in ("Claim", "build"):
            if wanted not in self.headers:
                raise BuildError(f"{path}: no '// {wanted}:' line")

    def get(self, key, default=""):
        return self.headers.get(key, default)

    def configs(self):
        result = []
        for part in self.get("build").split(";"):
            axes = [axis.split(",") for axis in part.split()]
            if len(axes) != 4:
                raise BuildError(f"{self.path}: '// build:' wants compilers levels pie links")
            result += [tuple(c) for c in itertools.product(*axes)]
        return result

    def ci_configs(self):
        """What `// ci:` names, else two that differ in all, the second at a level by name."""
        if "ci" in self.headers:
            return [tuple(c.split()) for c in self.get("ci").split(";")]
        everything = self.configs()
        levels = sorted({c[1] for c in everything})
        other = levels[zlib.crc32(self.name.encode()) % len(levels)]
        picked = []
        for wanted in (("gcc", "O2", "pie"), ("clang", other, "nopie")):
            fit = max(everything, key=lambda c: sum(w in c for w in wanted))
            if fit not in picked:
                picked.append(fit)
        return picked

    def arguments(self):
        return shlex.split(self.get("args"))

    def environment(self):
        return dict(item.split("=", 1) for item in shlex.split(self.get("env")))

    def missing(self):
        """Features of the processor that it needs and this one lacks."""
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            flags = next((l for l in f if l.startswith("flags")), "").split()
        return [n for n in self.get("needs").split()
                if not (goes_on_behind_int1() if n == "int1" else n in flags)]


# Ends with status 1 where the machine comes back to the same `int1` for ever.
INT1 = r"""
#include <signal.h>
#include <unistd.h>
static volatile int times;
static void handler(int number) { if (++times > 1) _exit(number == SIGTRAP); }
int main(void) {
  signal(SIGTRAP, handler);
  __asm__ volatile("nop\n .byte 0xf1\n nop" ::: "memory");
  return times != 1;
}
"""


@functools.cache
def goes_on_behind_int1():
    """Whether this machine does, natively."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "int1.c"), os.path.join(folder, "int1")
        with open(source, "w", encoding="utf-8") as f:
            f.write(INT1)
        subprocess.run(["gcc", "-O1", source, "-o", program], check=True)
        return subprocess.run([program], timeout=60).returncode == 0


def sources_digest(program):
    digest = hashlib.sha256()
    folder = os.path.dirname(program.path)
    paths = [program.path]
    paths += [os.path.join(folder, "include", n) for n in os.listdir(folder + "/include")]
    if program.get("also"):
        paths.append(os.path.join(folder, "include", program.get("also").split()[1]))
    for path in sorted(paths):
        with open(path, "rb") as f:
            digest.update(f.read())
    return digest.hexdigest()


def compile_command(program, config, output):
    compiler, level, pie, link = config
    command = [COMPILERS[compiler][program.suffix], "-" + level, "-g", "-w"]
    command += ["-std=gnu++17"] if program.suffix == ".cpp" else []
    command += ["-std=gnu11"] if program.suffix == ".c" else []
    command += ["-fPIE" if pie == "pie" else "-fno-pie"]
    if link == "nolibc":
        command += ["-ffreestanding", "-fno-stack-protector"]
    command += ["-I", os.path.dirname(program.path)]
    command += [program.path, "-o", output] + LINK[link, pie]
    command += shlex.split(program.get("flags"))
    return command + (shlex.split(program.get("dynamic")) if link == "dynamic" else [])


def build(program, config, folder):
    """The executable of one configuration, from the cache when sources and flags are the same."""
    target = os.path.join(folder, program.name + "-" + "-".join(config))
    command = compile_command(program, config, target)
    commands = [command]
    if program.get("also"):
        source = program.get("also").split()[1]
        library = os.path.join(folder, program.name + "-" + source.rsplit(".", 1)[0] + ".so")
        path = os.path.join(os.path.dirname(program.path), "include", source)
        commands.insert(0, [command[0], "-O2", "-g", "-w", "-fPIC", "-shared", path, "-o", library])
        command += ["-DLIBRARY=\"%s\"" % library]
    stamp_text = sources_digest(program) + repr(commands)
    stamp = target + ".stamp"
    if os.path.exists(stamp) and os.path.exists(target):
        with open(stamp, encoding="utf-8") as f:
            if f.read() == stamp_text:
                return target
    for c in commands:
        done = subprocess.run(c, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"{shlex.join(c)}\n{done.stderr}")
    with open(stamp, "w", encoding="utf-8") as f:
        f.write(stamp_text)
    return target


def find(folder):
    paths = [os.path.join(folder, n) for n in sorted(os.listdir(folder))]
    return [Program(p) for p in paths if os.path.splitext(p)[1] in (".c", ".cpp", ".S")]
