#!/usr/bin/env python3
"""Builds each tests/fuzz/NAME.cpp under AddressSanitizer and UBSan and runs it for a while.

A target is a program `NAME ITERATIONS [SEED]`: it damages inputs at random and puts them through
one room, and prints the seed.  It runs in batches with one seed after the other until its time is
up, so a failure is had again with the printed command.

usage: fuzz.py [--seconds=N] [--only=NAME] [--seed=N] [--iterations=N]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
# The rooms that read hostile bytes, and those above them.
ROOMS = ["cache", "tracee", "translate", "report", "claims", "profile", "cfg", "placement", "isa",
         "elf", "base"]
SANITIZE = "address,undefined"


def build_rooms():
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja",
         "-DCMAKE_CXX_COMPILER=g++", "-DCMAKE_BUILD_TYPE=Debug",
         "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g -fno-sanitize-recover=undefined",
         "-DTALLY_TESTS=OFF", f"-DTALLY_SANITIZE={SANITIZE}"],
        check=True, stdout=subprocess.DEVNULL)
    targets = [f"tally_{room}" for room in ROOMS if list((ROOT / "src" / room).glob("*.cpp"))]
    subprocess.run(["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count()),
                    "--target", *targets], check=True)
    return [str(BUILD / f"lib{target}.a") for target in targets]


def build_target(source, libraries):
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libelf", "libdw", "sqlite3",
                            "zlib"], check=True, capture_output=True, text=True).stdout.split()
    binary = BUILD / source.stem
    subprocess.run(["g++", "-std=c++23", "-O1", "-g", f"-fsanitize={SANITIZE}",
                    "-fno-sanitize-recover=undefined", f"-I{ROOT / 'src'}",
                    f'-DTALLY_SOURCE_DIR="{ROOT}"', str(source), "-o", str(binary),
                    "-Wl,--start-group", *libraries, "-Wl,--end-group",
                    "-lZydis", "-lZycore", "-lfmt", *flags], check=True)
    return binary


def fuzz(binary, options):
    """Batches until the time is up; False at the first failure."""
    work = BUILD / (binary.name + ".work")
    work.mkdir(exist_ok=True)
    seed, end = options.seed, time.monotonic() + options.seconds
    while time.monotonic() < end:
        command = [str(binary), str(options.iterations), str(seed)]
        try:
            done = subprocess.run(command, cwd=work, stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=options.batch_timeout_s)
        except subprocess.TimeoutExpired:
            print(f"FAILED {binary.name}: no end after {options.batch_timeout_s} s; again:",
                  " ".join(command), flush=True)
            return False
        if done.returncode:
            print("\n".join(done.stdout.splitlines()[-60:]))
            print(f"FAILED {binary.name}: status {done.returncode}; again:", " ".join(command),
                  flush=True)
            return False
        seed += 1
    print(f"ok {binary.name}: seeds {options.seed} to {seed - 1}, {options.iterations} each",
          flush=True)
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--batch-timeout-s", type=float, default=300)
    options = parser.parse_args()
    sources = [s for s in sorted((ROOT / "tests" / "fuzz").glob("*.cpp"))
               if options.only in s.stem]
    if not sources:
        print("no fuzz targets in tests/fuzz")
        return 1
    libraries = build_rooms()
    failed = 0
    for source in sources:
        failed += not fuzz(build_target(source, libraries), options)
    print(f"{len(sources) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
