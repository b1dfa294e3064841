#!/usr/bin/env python3
"""`tally verify` on profiles of a program of two source files, each with a local function `work`.

gcov's documents, packed and joined by `cat`; Clang's coverage; BOLT, which numbers the two. All
are right, and have to be verified."""
import json
import os
import pathlib
import shutil
import subprocess

TALLY, WORK = os.environ["TALLY"], pathlib.Path(os.environ["WORK"])
LOCAL = """
static __attribute__((noinline)) int work(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (i %% 3 == 0) sum += i;
  }
  return sum;
}
int %s(int n) {
  return work(n) + work(n + 1)%s;
}
"""


def sh(*command, **more):
    done = subprocess.run(command, cwd=WORK, capture_output=True, check=False, **more)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command}: status {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def build(name, compiler, *flags):
    for file in ("one", "two"):
        sh(compiler, "-g", *flags, "-c", file + ".c", "-o", f"{name}-{file}.o")
    sh(compiler, *flags, f"{name}-one.o", f"{name}-two.o", "-o", name, "-Wl,--emit-relocs")
    return "./" + name


def verified(profile, program, kind):
    sh(TALLY, "check", profile, "--program=" + program)
    sh(TALLY, "verify", "--profile=" + profile, "--format=json", "-o", "verdict.json",
       "--", program)
    verdict = json.loads((WORK / "verdict.json").read_text())
    if not verdict["verified"] or verdict[kind]["judged"] < 4:
        raise SystemExit(f"{profile}: {verdict[kind]}, {verdict['findings']}")


(WORK / "one.c").write_text(LOCAL % ("first", "") + "int second(int);\n"
                            "int main(void) {\n  return first(10) + second(20) == 0;\n}\n")
(WORK / "two.c").write_text(LOCAL % ("second", " + work(n + 2)"))

sh(build("covered", "gcc", "-O0", "--coverage"))
sh("gcov", "--json-format", "covered-one.gcda", "covered-two.gcda")
packed = sorted(WORK.glob("*.gcov.json.gz"))
if len(packed) != 2:
    raise SystemExit(f"gcov made {packed}")
(WORK / "all.gcov.json.gz").write_bytes(b"".join(p.read_bytes() for p in packed))
plain = build("plain", "gcc", "-O0")
verified("all.gcov.json.gz", plain, "lines")
verified("all.gcov.json.gz", plain, "procedures")

sh(build("regions", "clang", "-O0", "-fprofile-instr-generate", "-fcoverage-mapping"),
   env=dict(os.environ, LLVM_PROFILE_FILE="raw"))
sh("llvm-profdata", "merge", "raw", "-o", "merged")
(WORK / "coverage.json").write_bytes(sh("llvm-cov", "export", "regions", "-instr-profile=merged"))
verified("coverage.json", build("clang_plain", "clang", "-O0"), "procedures")

bolt = next(filter(None, (shutil.which(f"llvm-bolt-{n}") for n in range(22, 13, -1))), None)
library = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/libbolt_rt_instr.a"))[-1]
optimized = build("optimized", "gcc", "-O2")
sh(bolt, optimized, "-o", "bolted", "--instrument",
   "--instrumentation-file=" + str(WORK / "x.fdata"),
   "--runtime-instrumentation-lib=" + str(library.relative_to("/usr/lib")))
sh("./bolted")
if "work/2" not in (WORK / "x.fdata").read_text():
    raise SystemExit("BOLT does not number the functions of one name")
verified("x.fdata", optimized, "edges")
