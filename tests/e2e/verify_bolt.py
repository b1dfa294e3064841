#!/usr/bin/env python3
"""BOLT's instrumentation moves the heap: `canon_hash` then walks other chains, and its profile is
of another run than the unmodified program's; `tally verify` says so by both engines and blames the
surroundings.  The table of `figure2` stays where it is: BOLT's profile of it is verified."""
import pathlib
import shutil
import subprocess
import sys

from refusal import complain, finish, path, run

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "verify"
LIBRARIES = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/libbolt_rt_instr.a"))
BOLT = next((b for n in range(22, 13, -1) if (b := shutil.which(f"llvm-bolt-{n}"))), None)


def printed(program):
    return subprocess.run(["setarch", "-R", program], check=True, capture_output=True,
                          timeout=60).stdout


def instrumented(name):
    """The program, BOLT's profile of it, and whether its instrumented copy prints the same."""
    program, profile = path(name), path(name + ".fdata")
    for command in (["gcc", "-O1", "-no-pie", "-Wl,--emit-relocs", SOURCES / (name + ".c"), "-o",
                     program],
                    [BOLT, program, "-o", program + ".bolt", "--instrument",
                     f"--runtime-instrumentation-lib={LIBRARIES[-1].relative_to('/usr/lib')}",
                     "--instrumentation-file=" + profile]):
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return program, profile, printed(program) == printed(program + ".bolt")


if BOLT is None or not LIBRARIES:
    print("no llvm-bolt: install bolt-16")
    sys.exit(77)
for source, moves in (("canon_hash", True), ("figure2", False)):
    subject, fdata, same = instrumented(source)
    if same == moves:
        complain(f"{source}: BOLT's copy prints {'the same' if same else 'something else'}")
    for engine in ("trap", "translate"):
        done = run(["verify", "--profile=" + fdata, "--engine=" + engine, "--", subject],
                   f"{source}-{engine}")
        said = (done.stdout + done.stderr).decode()
        if done.status != (1 if moves else 0):
            complain(f"{source}, {engine}: status {done.end()}: {said[-600:]}")
        if moves and ("environment" not in said or "heap" not in said and "address" not in said):
            complain(f"{source}, {engine}: the surroundings are not blamed: {said[-600:]}")
finish()
