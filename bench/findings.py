#!/usr/bin/env python3
"""What other profilers get wrong of real programs: `tally check` and `tally verify` say it.

The programs are Debian's sources (apt-get source, into bench/.work/findings; lists of its own, the
system's are not touched), built here without their makefiles: bzip2, lua, lz4, and with threads
pbzip2 and zstd.  The profilers are gcov, Clang's coverage, BOLT's instrumentation, callgrind and
perf.  Each profile is made of the program as the tool wants it built; Tally runs the same sources
built with the same compiler and optimization and without the tool.

  findings.py [--tally=PATH] [--program=NAME,...] [--tool=NAME,...] [--findings=N] [--rebuild]

Prints a row for each profile: claims compared, findings by class, what `tally check` finds; and
with --findings=N the N largest of each class.  docs/findings.md tells what they mean.
"""
import argparse
import collections
import dataclasses
import json
import os
import pathlib
import shlex
import shutil
import subprocess
import sys

import inputs

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / ".work" / "findings"
CLASSES = ("wrong", "scheduling", "nondeterministic", "environment", "profiler's own I/O",
           "structure", "unexplained")

# Errors go through longjmp, coroutines through threads of Lua's own; deep recursion; a child.
LUA_SCRIPT = """
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
print(fib(20))
local caught = 0
for i = 1, 500 do
  if not pcall(function() if i % 3 == 0 then error("no") end return i end) then
    caught = caught + 1
  end
end
print(caught)
local co = coroutine.wrap(function() for i = 1, 1000 do coroutine.yield(i * i) end end)
local sum, t = 0, {}
for i = 1, 1000 do sum = sum + co() end
for i = 1, 3000 do t[#t + 1] = string.format("%d:%x", i * 7919 % 3001, i) end
table.sort(t)
print(sum, #table.concat(t), (table.concat(t):gsub("%d%d", "#")):len())
"""


@dataclasses.dataclass(frozen=True)
class Program:
    package: str
    sources: tuple  # globs below the unpacked package; packages joined by ":"
    command: tuple
    flags: tuple = ()
    libraries: tuple = ()
    but: tuple = ()  # sources left out
    cxx: bool = False


PROGRAMS = {
    "bzip2": Program(
        "bzip2",
        tuple(f"bzip2/{n}.c" for n in ("bzip2", "blocksort", "bzlib", "compress", "crctable",
                                       "decompress", "huffman", "randtable")),
        ("-9", "-k", "-c", "{text}"), ("-D_FILE_OFFSET_BITS=64",)),
    # The seed of its hashes would be the time and addresses.
    "lua": Program("lua5.4", ("lua5.4/src/*.c",), ("{script}",),
                   ("-DLUA_USE_POSIX", "-Dluai_makeseed(L)=1234", "-I{work}"), ("-lm",),
                   ("luac.c",)),
    "pbzip2": Program(
        "pbzip2 bzip2",
        ("pbzip2/*.cpp", *(f"bzip2/{n}.c" for n in ("blocksort", "bzlib", "compress", "crctable",
                                                    "decompress", "huffman", "randtable"))),
        ("-p2", "-1", "-b1", "-k", "-c", "{text}"),
        ("-D_FILE_OFFSET_BITS=64", "-DUSE_STACKSIZE_CUSTOMIZATION", "-I{sources}/bzip2",
         "-Wno-reserved-user-defined-literal"),
        ("-pthread",), cxx=True),
    # A pool of threads for blocks, others for reading and writing.
    "zstd": Program("libzstd",
                    tuple(f"libzstd/lib/{n}/*.c" for n in ("common", "compress", "decompress"))
                    + tuple(f"libzstd/programs/{n}.c" for n in ("zstdcli", "util", "timefn",
                                                                "fileio", "fileio_asyncio")),
                    ("-T2", "-1", "-q", "-k", "-c", "{text}"),
                    ("-DZSTD_MULTITHREAD", "-DZSTD_DISABLE_ASM", "-DXXH_NAMESPACE=ZSTD_",
                     "-DZSTD_NOBENCH", "-DZSTD_NODICT", "-DZSTD_NOTRACE", "-DZSTD_LEGACY_SUPPORT=0",
                     "-DBACKTRACE_ENABLE=0", "-I{sources}/libzstd/lib",
                     "-I{sources}/libzstd/lib/common"), ("-pthread",)),
    "lz4": Program("lz4", ("lz4/lib/*.c", "lz4/programs/*.c"), ("-3", "-k", "-c", "{text}"),
                   ("-DXXH_NAMESPACE=LZ4_", "-I{sources}/lz4/lib"), but=("lz4_fuzzer.c",)),
}

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


def sh(command, cwd, environment=None, stdout=subprocess.PIPE, expect=(0,)):
    done = subprocess.run([str(c) for c in command], cwd=cwd, env=environment or ENVIRONMENT,
                          stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
                          text=True, check=False, timeout=1200)
    if done.returncode not in expect:
        raise RuntimeError(f"{shlex.join(str(c) for c in command)}: status {done.returncode}: "
                           f"{done.stderr.strip()[-800:]}")
    return done.stdout


def fetch(packages):
    """Debian's sources, unpacked into folders that bear the package's name."""
    sources, state = WORK / "sources", WORK / "apt"
    wanted = [p for p in packages if not (sources / p).exists()]
    if not wanted:
        return sources
    (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    sources.mkdir(parents=True, exist_ok=True)
    (state / "sources.list").write_text("deb-src http://deb.debian.org/debian bookworm main\n")
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::SourceList={state}/sources.list",
           "-o", "Dir::Etc::SourceParts=/nonexistent", "-o", f"Dir::State::Lists={state}/lists",
           "-o", f"Dir::Cache={state}", "-o", "APT::Sandbox::User=root"]
    sh([*apt, "update"], sources)
    for package in wanted:
        sh([*apt, "source", "--download-only", package], sources)
        description = max(sources.glob(f"{package}_*.dsc"))
        sh(["dpkg-source", "--no-check", "-x", description.name, package], sources)
    return sources


class Build:
    """One program, built one way, in a folder of its own."""

    def __init__(self, options, name, way, compiler, *flags):
        self.program, self.name = PROGRAMS[name], name
        self.sources = fetch(self.program.package.split())
        self.folder = WORK / name / way
        self.path = self.folder / name
        self.made_by = None  # the build with the profiler in it, where that is another one
        if options.rebuild or not self.path.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self.compile(compiler, flags)

    def compile(self, compiler, flags):
        files = [f for pattern in self.program.sources for f in sorted(self.sources.glob(pattern))
                 if f.name not in self.program.but]
        own = [f.format(sources=self.sources, work=WORK) for f in self.program.flags]
        objects = []
        for file in files:
            compiler_here = compiler
            if file.suffix == ".cpp":
                compiler_here = {"gcc": "g++", "clang": "clang++"}[compiler]
            objects.append(f"{file.parent.name}-{file.stem}.o")
            sh([compiler_here, "-g", "-w", *own, *flags, "-c", file, "-o", objects[-1]],
               self.folder)
        link = {"gcc": "g++", "clang": "clang++"}[compiler] if self.program.cxx else compiler
        link_only = [f for f in flags if not f.startswith("-O")]
        sh([link, *link_only, *objects, "-o", self.name, *self.program.libraries,
            "-Wl,--emit-relocs"], self.folder)

    def command(self):
        values = {"text": WORK / f"text-{self.name}", "script": WORK / "script.lua"}
        return ["./" + self.name, *(a.format(**values) for a in self.program.command)]

    def run(self, *before, environment=None):
        sh([*before, *self.command()], self.folder, dict(ENVIRONMENT, **(environment or {})),
           stdout=subprocess.DEVNULL)


# Each tool makes a profile: the build to verify it with, and the profile's file.

def gcov(options, name, level="-O0", *more):
    plain = Build(options, name, "gcc" + level, "gcc", level)
    way = "gcov" + level + "".join(more)
    built = Build(options, name, way, "gcc", level, "--coverage", *more)
    for data in built.folder.glob("*.gcda"):
        data.unlink()
    built.run()
    text = sh(["gcov", "--json-format", "--stdout", *sorted(built.folder.glob("*.gcda"))],
              built.folder)
    profile = built.folder / "profile.gcov.json"
    profile.write_text(text)
    plain.made_by = built.path
    return plain, profile


def clang(options, name, *more):
    plain = Build(options, name, "clang-O0", "clang", "-O0")
    built = Build(options, name, "coverage" + "".join(more), "clang", "-O0",
                  "-fprofile-instr-generate", "-fcoverage-mapping", *more)
    built.run(environment={"LLVM_PROFILE_FILE": "raw"})
    sh(["llvm-profdata", "merge", "raw", "-o", "merged"], built.folder)
    profile = built.folder / "coverage.json"
    profile.write_text(sh(["llvm-cov", "export", built.path, "-instr-profile=merged"],
                          built.folder))
    plain.made_by = built.path
    return plain, profile


def optimized(options, name):
    return Build(options, name, "gcc-O2", "gcc", "-O2", "-fno-reorder-blocks-and-partition")


def bolt_instrument(source, result, profile, *more):
    """BOLT's instrumented copy of a program; it writes its counts to `profile`."""
    tool = next(filter(None, (shutil.which(f"llvm-bolt{n}") for n in ("", "-16", "-14"))), None)
    if tool is None:
        raise RuntimeError("no llvm-bolt: install bolt-16")
    # Debian's llvm-bolt looks for its library in /usr/lib, wherever it is told to look.
    library = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/libbolt_rt_instr.a"))[-1]
    sh([tool, source, "-instrument", "-o", result, *more,
        "--runtime-instrumentation-lib=" + str(library.relative_to("/usr/lib")),
        f"--instrumentation-file={profile}"], result.parent)


def bolt(options, name, *more):
    plain = optimized(options, name)
    folder = WORK / name / ("bolt" + "".join(more))
    folder.mkdir(parents=True, exist_ok=True)
    profile = folder / "counts.fdata"
    bolt_instrument(plain.path, folder / name, profile, *more)
    profile.unlink(missing_ok=True)
    sh(["./" + name, *plain.command()[1:]], folder, stdout=subprocess.DEVNULL)
    return plain, profile


def callgrind(options, name, *more):
    plain = optimized(options, name)
    profile = plain.folder / ("callgrind.out" + "".join(more))
    plain.run("valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes",
              f"--callgrind-out-file={profile}", *more)
    return plain, profile


def perf(options, name):
    plain = optimized(options, name)
    sh(["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-o", "perf.data", "--",
        *plain.command()], plain.folder, stdout=subprocess.DEVNULL)
    profile = plain.folder / "perf.script"
    profile.write_text(sh(["perf", "script", "-i", "perf.data", "--show-mmap-events"],
                          plain.folder))
    return plain, profile


TOOLS = {
    "gcov": gcov,
    "gcov-atomic": lambda o, n: gcov(o, n, "-O0", "-fprofile-update=atomic"),
    "gcov-O2": lambda o, n: gcov(o, n, "-O2"),
    "clang": clang,
    "clang-atomic": lambda o, n: clang(o, n, "-fprofile-update=atomic"),
    "bolt": bolt,
    "bolt-conservative": lambda o, n: bolt(o, n, "-conservative-instrumentation"),
    "callgrind": callgrind,
    "callgrind-plt": lambda o, n: callgrind(o, n, "--skip-plt=no"),
    "perf": perf,
}


def check(tally, plain, profile):
    """Kinds of contradictions found without a run, and what could be compared."""
    text = sh([tally, "check", profile, "--program=" + str(plain.path), "--format=json"],
              plain.folder, expect=(0, 1))
    report = json.loads(text)
    kinds = collections.Counter(f["kind"] for f in report["findings"])
    return report, ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) or "none"


def verify(tally, plain, profile):
    result = profile.with_name(profile.name + ".verdict")
    result.unlink(missing_ok=True)
    # A short name, as it was run by: lua makes a string of it.
    maker = [f"--made-by={os.path.relpath(plain.made_by, plain.folder)}"] if plain.made_by else []
    sh(["setarch", "-R", tally, "verify", f"--profile={profile}", *maker, "--format=json", "-o",
        result, "--", *plain.command()], plain.folder, stdout=subprocess.DEVNULL, expect=(0, 1))
    return json.loads(result.read_text())


def show(finding):
    where = finding["where"] + (" -> " + finding["to"] if "to" in finding else "")
    claimed = finding["claimed"] - (finding["claimed"] >> 63 << 64)  # gcov's may be negative
    return (f"    {finding['kind']:18} {where} [{finding.get('name', '')}] claimed {claimed}, "
            f"counted {finding['counted']}; {finding.get('record', '')}; "
            f"{finding.get('evidence', '')}")


def row(options, name, tool):
    plain, profile = TOOLS[tool](options, name)
    report, contradictions = check(options.tally, plain, profile)
    verdict = verify(options.tally, plain, profile)
    kinds = ("edges", "blocks", "procedures", "instructions", "lines")
    claims = sum(verdict[k]["claims"] for k in kinds)
    judged = sum(verdict[k]["judged"] for k in kinds)
    reasons = collections.Counter(f["reason"] for f in verdict["findings"])
    overlap = f"{100 * verdict['overlap']:.0f}%" if "overlap" in verdict else "-"
    print(f"| {name} | {tool} | {claims:,} | {judged:,} | "
          + " | ".join(str(reasons[c]) for c in CLASSES)
          + f" | {overlap} | {contradictions} |", flush=True)
    if options.findings:
        for reason in CLASSES:
            of_reason = [f for f in verdict["findings"] if f["reason"] == reason]
            for finding in of_reason[:options.findings]:
                print(f"  {reason}:\n{show(finding)}")
        for finding in report["findings"][:options.findings]:
            print(f"  check: {finding['kind']}: {finding['where']}: {finding['message']} "
                  f"({finding.get('record', '')})")
        for remark in verdict["remarks"] + verdict["notes"]:
            print(f"  note: {remark}")
        sys.stdout.flush()


def make_inputs():
    WORK.mkdir(parents=True, exist_ok=True)
    (WORK / "script.lua").write_text(LUA_SCRIPT)
    # What Debian's packaging of lua generates.
    (WORK / "lua5.4-deb-multiarch.h").write_text(
        '#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n')
    for name, size_bytes in (("bzip2", 500_000), ("pbzip2", 1_500_000), ("lz4", 1_000_000),
                             ("zstd", 6_000_000)):
        path = WORK / f"text-{name}"
        if not path.exists():
            inputs.make_text(path, size_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", default=str(HERE.parent / "build" / "release" / "tally"))
    parser.add_argument("--program", default=",".join(PROGRAMS))
    parser.add_argument("--tool", default=",".join(TOOLS))
    parser.add_argument("--findings", type=int, default=0, help="list so many of each class")
    parser.add_argument("--rebuild", action="store_true", help="compile the programs again")
    options = parser.parse_args()
    options.tally = os.path.abspath(options.tally)
    make_inputs()
    print("| program | profile of | claims | judged | " + " | ".join(CLASSES)
          + " | overlap | `tally check` |")
    print("|---|---|---:|---:|" + "---:|" * (len(CLASSES) + 1) + "---|", flush=True)
    failed = 0
    for name in options.program.split(","):
        for tool in options.tool.split(","):
            try:
                row(options, name, tool)
            except RuntimeError as error:
                failed += 1
                print(f"| {name} | {tool} | failed: {error} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
