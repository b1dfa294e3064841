#!/usr/bin/env python3
"""Four threads call one function ten million times each: who counts forty million?

Side by side: Tally, gcov (-fprofile-update=single and atomic), Clang's -fprofile-generate and
-fprofile-instr-generate (likewise) and BOLT's -instrument.  Each tool's own report is asked how
often the function was entered; times are medians of wall-clock seconds, and the native time is that
of the same program without any of them.  Tools that are not installed are left out and named.

usage: threads_counters.py --tally=PATH [--rounds=5] [--threads=4] [--calls=10000000]
                           [--out=bench/threads_counters.md]
"""
import argparse
import csv
import datetime
import gzip
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
WORK = HERE / ".work" / "threads_counters"

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
struct slot { volatile long n; char own_cache_line[120]; };
static struct slot slots[THREADS];
__attribute__((noinline, noclone)) void work(struct slot* s) {
  s->n++;
  __asm__ volatile("" : : : "memory");
}
static void* thread_main(void* p) {
  for (long i = 0; i < CALLS; i++) work(p);
  return NULL;
}
int main(void) {
  pthread_t threads[THREADS];
  long sum = 0;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, thread_main, &slots[i]);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) sum += slots[i].n;
  printf("%ld\n", sum);
  return 0;
}
"""


class Unavailable(Exception):
    pass


def need(*names):
    """The first of the programs that is installed."""
    for name in names:
        if shutil.which(name):
            return name
    raise Unavailable(f"{names[0]} is not installed")


class Bench:
    def __init__(self, options):
        self.options = options
        self.expected = options.threads * options.calls

    def sh(self, *command, cwd=None, **more):
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False, **more
        )
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def build(self, name, compiler, *flags):
        folder = WORK / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "threads.c").write_text(SOURCE)
        sizes = [f"-DTHREADS={self.options.threads}", f"-DCALLS={self.options.calls}L"]
        self.sh(compiler, "-O2", "-g", *sizes, "threads.c", "-o", "threads", "-pthread", *flags,
                cwd=folder)
        return folder

    def time(self, folder, *command):
        """Runs it; wall-clock seconds.  The program's own sum must be right."""
        began = time.monotonic()
        said = self.sh(*command, cwd=folder)
        seconds = time.monotonic() - began
        if said.strip().splitlines()[0] != str(self.expected):
            raise RuntimeError(f"{command} said {said!r}")
        return seconds

    # Each tool is a generator: it builds, then yields (seconds, count) for each round.

    def native(self):
        folder = self.build("native", "gcc")
        while True:
            yield self.time(folder, "./threads"), self.expected

    def tally(self):
        folder = self.build("tally", "gcc")
        tool = os.path.abspath(self.options.tally)
        while True:
            seconds = self.time(folder, tool, "profile", "-o", "t.tally", "--", "./threads")
            address = next(
                int(line.split()[0], 16)
                for line in self.sh("nm", "threads", cwd=folder).splitlines()
                if line.endswith(" work")
            )
            rows = csv.DictReader(self.sh(tool, "dump", "instructions", "t.tally",
                                          cwd=folder).splitlines())
            count = sum(
                int(r["count"]) for r in rows
                if r["module"].endswith("/threads") and int(r["address"], 16) == address
            )
            yield seconds, count

    def gcov(self, update):
        need("gcov")
        folder = self.build("gcov-" + update, "gcc", "--coverage", "-fprofile-update=" + update)
        while True:
            for data in folder.glob("*.gcda"):
                data.unlink()
            seconds = self.time(folder, "./threads")
            notes = next(folder.glob("*.gcno")).name
            self.sh("gcov", "--json-format", notes, cwd=folder)
            report = json.loads(gzip.decompress(next(folder.glob("*.gcov.json.gz")).read_bytes()))
            functions = {f["name"]: f for f in report["files"][0]["functions"]}
            yield seconds, functions["work"]["execution_count"]

    def clang(self, how, update):
        need("clang")
        merge = need("llvm-profdata", "llvm-profdata-14")
        folder = self.build(f"clang{how}-{update}", "clang", how, "-fprofile-update=" + update)
        while True:
            for data in folder.glob("*.profraw"):
                data.unlink()
            seconds = self.time(folder, "./threads")
            raw = next(folder.glob("*.profraw")).name
            self.sh(merge, "merge", "-o", "merged", raw, cwd=folder)
            text = self.sh(merge, "show", "--counts", "--function=work", "merged", cwd=folder)
            count = re.search(r"(?:Function count: |Block counts: \[)(\d+)", text)
            yield seconds, int(count.group(1))

    def bolt(self):
        bolt = need("llvm-bolt", "llvm-bolt-16", "llvm-bolt-14")
        folder = self.build("bolt", "gcc", "-Wl,--emit-relocs", "-fno-reorder-blocks-and-partition")
        # Debian's llvm-bolt looks for its library in /usr/lib, wherever it is told to look.
        libraries = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/libbolt_rt_instr.a"))
        runtime = [
            "--runtime-instrumentation-lib=" + str(library.relative_to("/usr/lib"))
            for library in libraries[-1:]
        ]
        self.sh(bolt, "threads", "-instrument", "-o", "instrumented", *runtime,
                "--instrumentation-file=" + str(folder / "counts.fdata"), cwd=folder)
        while True:
            seconds = self.time(folder, "./instrumented")
            count = 0
            for line in (folder / "counts.fdata").read_text().splitlines():
                fields = line.split()
                # known, from, offset, known, to, offset, mispredictions, count
                if len(fields) == 8 and fields[4] == "work" and fields[5] == "0":
                    count += int(fields[7])
            yield seconds, count

    def run(self):
        tools = [
            ("native", self.native()),
            ("Tally", self.tally()),
            ("gcov, single", self.gcov("single")),
            ("gcov, atomic", self.gcov("atomic")),
            ("Clang -fprofile-generate, single", self.clang("-fprofile-generate", "single")),
            ("Clang -fprofile-generate, atomic", self.clang("-fprofile-generate", "atomic")),
            ("Clang -fprofile-instr-generate, single",
             self.clang("-fprofile-instr-generate", "single")),
            ("Clang -fprofile-instr-generate, atomic",
             self.clang("-fprofile-instr-generate", "atomic")),
            ("BOLT -instrument", self.bolt()),
        ]
        results, missing = {name: [] for name, _ in tools}, {}
        for _ in range(self.options.rounds):
            for name, rounds in tools:
                if name in missing:
                    continue
                try:
                    results[name].append(next(rounds))
                except Unavailable as e:
                    missing[name] = str(e)
                except RuntimeError as e:
                    missing[name] = f"failed: {e}"
        return results, missing


def table(bench, results, missing):
    native = statistics.median(s for s, _ in results["native"])
    lines = [
        "# Counting in four threads",
        "",
        f"{bench.options.threads} threads call one function {bench.options.calls:,} times each.",
        "Made by `bench/threads_counters.py`: what each tool's own report says of how often the",
        f"function was entered, over {bench.options.rounds} rounds.",
        "",
        "Clang 14 ignores `-fprofile-update=atomic` with `-fprofile-generate`: its increments have",
        "no `lock` prefix (`objdump`).",
        "",
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, "
        f"{os.cpu_count()} processors, Linux {platform.release()}.",
        "",
        f"| tool | lowest count | highest count | of {bench.expected:,} | seconds | times native |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, rounds in results.items():
        if name in missing:
            lines.append(f"| {name} | - | - | - | {missing[name]} | |")
            continue
        counts = [c for _, c in rounds]
        seconds = statistics.median(s for s, _ in rounds)
        share = "exact" if set(counts) == {bench.expected} else (
            f"{100 * min(counts) / bench.expected:.1f} %")
        lines.append(f"| {name} | {min(counts):,} | {max(counts):,} | {share} | {seconds:.3f} | "
                     f"{seconds / native:.1f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", default=str(HERE.parent / "build" / "release" / "tally"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--calls", type=int, default=10_000_000)
    parser.add_argument("--out", default=str(HERE / "threads_counters.md"))
    bench = Bench(parser.parse_args())
    results, missing = bench.run()
    text = table(bench, results, missing)
    print(text, end="")
    pathlib.Path(bench.options.out).write_text(text)
    exact = "Tally" not in missing and {c for _, c in results["Tally"]} == {bench.expected}
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
