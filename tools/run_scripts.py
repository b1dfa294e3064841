#!/usr/bin/env python3
"""Runs the executable files of a folder as tests, two at a time on two processors.

A script passes with exit status 0, is skipped with 77 (its last line says why) and fails with
anything else or after its time is up.  It gets a scratch folder of its own as current folder, and
in the environment TALLY (the program) and TALLY_SOURCE (the repository).  A failed test keeps its
folder; the command that repeats it is printed.

usage: run_scripts.py --tally=PATH [--only=NAME] [--jobs=N] [--timeout-s=N] FOLDER
"""

import argparse
import concurrent.futures
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED = 77


def run_one(script, options):
    work = ROOT / "build" / "test-work" / script.name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    environment = dict(os.environ, TALLY=options.tally, TALLY_SOURCE=str(ROOT), LC_ALL="C.UTF-8")
    started = time.monotonic()
    process = subprocess.Popen(
        [str(script)], cwd=work, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=options.timeout_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        # The whole session: the script, tally and what tally runs.
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        output += f"\nstopped after {options.timeout_s} s\n".encode()
        status = -1
    if status in (0, SKIPPED):
        shutil.rmtree(work, ignore_errors=True)
    return status, output.decode(errors="replace"), time.monotonic() - started, work


def report(script, result, options):
    status, output, seconds, work = result
    verdict = {0: "ok", SKIPPED: "skipped"}.get(status, "FAILED")
    last = output.strip().splitlines()[-1:] if status == SKIPPED else []
    print(f"{verdict:8}{script.name:40}{seconds:7.1f} s {' '.join(last)}", flush=True)
    if verdict == "FAILED":
        print("\n".join("    " + line for line in output.splitlines()[-60:]))
        print(f"    exit status {status}; kept: {work}")
        print(f"    again: cd {work} && TALLY={shlex.quote(options.tally)} TALLY_SOURCE={ROOT} "
              f"{script}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--only", default="", help="run scripts whose name contains this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--timeout-s", type=int, default=900)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    scripts = sorted(f.resolve() for f in options.folder.iterdir()
                     if f.is_file() and os.access(f, os.X_OK) and options.only in f.name)
    if not scripts:
        print(f"no test scripts in {options.folder}")
        return 1
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(run_one, s, options): s for s in scripts}
        for future in concurrent.futures.as_completed(futures):
            result = future.result()
            report(futures[future], result, options)
            key = {0: "passed", SKIPPED: "skipped"}.get(result[0], "failed")
            counts[key] += 1
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
