#!/usr/bin/env python3
"""Builds each tests/fuzz/NAME.cpp with clang's libFuzzer and runs it for a while.

The rooms that read hostile bytes are built with clang, AddressSanitizer and UBSan below
build/fuzz; the corpus grows in build/fuzz/corpus/NAME and starts from tests/fuzz/seeds/NAME where
that exists.  The seed of a run is printed, so a failure can be had again.

usage: fuzz.py [--seconds=N] [--only=NAME] [--seed=N]
"""

import argparse
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
# Link order: a library before those it uses.
ROOMS = ["report", "profile", "cfg", "placement", "isa", "elf", "base"]
SANITIZE = "address,undefined"


def build_rooms():
    subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja",
         "-DCMAKE_CXX_COMPILER=clang++", "-DCMAKE_BUILD_TYPE=Debug",
         "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g",
         "-DTALLY_TESTS=OFF", f"-DTALLY_SANITIZE={SANITIZE},fuzzer-no-link"],
        check=True, stdout=subprocess.DEVNULL)
    targets = [f"tally_{room}" for room in ROOMS if list((ROOT / "src" / room).glob("*.cpp"))]
    subprocess.run(["cmake", "--build", str(BUILD), "--parallel", str(os.cpu_count()),
                    "--target", *targets], check=True)
    return [str(BUILD / f"lib{target}.a") for target in targets]


def build_target(source, libraries):
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "libelf", "libdw", "sqlite3"],
                           check=True, capture_output=True, text=True).stdout.split()
    binary = BUILD / source.stem
    subprocess.run(["clang++", "-std=c++2b", "-O1", "-g", f"-fsanitize=fuzzer,{SANITIZE}",
                    f"-I{ROOT / 'src'}", str(source), "-o", str(binary),
                    "-Wl,--start-group", *libraries, "-Wl,--end-group",
                    "-lZydis", "-lZycore", "-lfmt", *flags], check=True)
    return binary


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--only", default="")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sources = [s for s in sorted((ROOT / "tests" / "fuzz").glob("*.cpp"))
               if options.only in s.stem]
    if not sources:
        print("no fuzz targets in tests/fuzz")
        return 1
    libraries = build_rooms()
    failed = 0
    for source in sources:
        binary = build_target(source, libraries)
        corpus = BUILD / "corpus" / source.stem
        corpus.mkdir(parents=True, exist_ok=True)
        seeds = ROOT / "tests" / "fuzz" / "seeds" / source.stem
        print(f"== {source.stem}: {options.seconds} s, seed {options.seed}", flush=True)
        done = subprocess.run(
            [str(binary), str(corpus), *([str(seeds)] if seeds.is_dir() else []),
             f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-timeout=20",
             "-rss_limit_mb=2048", "-print_final_stats=1",
             f"-artifact_prefix={BUILD}/{source.stem}-"], stdin=subprocess.DEVNULL)
        failed += done.returncode != 0
    print(f"{len(sources) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
