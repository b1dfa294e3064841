#!/usr/bin/env python3
"""Table 1 of "Verifying Program Profiles" with today's programs.

  bench/verify_table.py [--tally=PATH] [--size=LINES] [--only=NAME,...]
  bench/verify_table.py --long [--tally=PATH] [--only=NAME,...]

For each program, seconds of: a native run, `tally profile`, `tally verify --engine=trap` and
`--engine=translate`; and what the paper could not have: stops for each block executed and the time
of one.  Inputs are short, since traps cost; the paper's verification took 600 to 700 times as long
as profiling, and 5,900 times as long as the program.

With --long: runs of seconds, under translation alone; where its goal is at most three times native.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "gzip": ["gzip", "-9", "-c", "text"],
    "bzip2": ["bzip2", "-1", "-c", "text"],
    "xz": ["xz", "-0", "-T1", "-c", "text"],
    "sed": ["sed", "-n", "s/line \\(1[0-9]*\\)/\\1/p", "text"],
    "sqlite3": ["sqlite3", ":memory:",
                "create table t(a); insert into t values(1); select * from t"],
    "perl": ["perl", "-e", "my %h; $h{$_ % 97} += $_ for 1..200; print scalar(keys %h)"],
    "xz -T2": ["xz", "-0", "-T2", "--block-size=4096", "-c", "text"],
    "zstd -T2": ["zstd", "-q", "-1", "-T2", "-c", "text"],
}
# Name, command, and lines of the text.
LONG = {
    "gzip": (["gzip", "-9", "-c", "text"], 600_000),
    "bzip2": (["bzip2", "-1", "-c", "text"], 500_000),
    "xz": (["xz", "-1", "-T1", "-c", "text"], 1_500_000),
    "xz -T2": (["xz", "-1", "-T2", "--block-size=8MiB", "-c", "text"], 3_000_000),
    "sed": (["sed", "-n", "s/line \\(1[0-9]*\\)/\\1/p", "text"], 3_000_000),
    "sqlite3": (["sqlite3", ":memory:", "with recursive c(x) as (select 1 union all select x+1 "
                 "from c where x<6000000) select sum(x*x%7) from c"], 1),
    "perl": (["perl", "-e", "my %h; $h{$_ % 97} += $_ for 1..9000000; print scalar(keys %h)"], 1),
}


def seconds(command, folder, expect=(0,)):
    began = time.monotonic()
    env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "PERL_HASH_SEED": "0"}
    done = subprocess.run(["setarch", "-R", *command], cwd=folder, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in expect:
        raise SystemExit(f"{command}: status {done.returncode}")
    return time.monotonic() - began


def row(name, command, tally, folder):
    command = [os.path.realpath(shutil.which(command[0]))] + command[1:]
    native = min(seconds(command, folder) for _ in range(5))
    file, result = f"{name}.tally", f"{name}.json"
    profile = seconds([tally, "profile", "-o", file, "--", *command], folder)
    verify = [tally, "verify", "--profile=" + file, "--once", "--format=json", "-o", result]
    trap = seconds([*verify, "--engine=trap", "--", *command], folder, (0, 1))
    with open(os.path.join(folder, result), encoding="utf-8") as f:
        verdict = json.load(f)
    translate = seconds([*verify, "--engine=translate", "--", *command], folder, (0, 1))
    cost = verdict["cost"]
    print(f"| {name} | {native:.3f} | {profile:.2f} | {trap:.2f} | {translate:.2f} "
          f"| {trap / native:.0f} | {translate / native:.1f} | {cost['blocks_executed']} "
          f"| {cost['stops_per_block']:.3f} | {cost['microseconds_per_stop']:.0f} "
          f"| {'yes' if verdict['verified'] else len(verdict['findings'])} |", flush=True)


def write_text(folder, lines):
    with open(os.path.join(folder, "text"), "w", encoding="utf-8") as f:
        f.writelines(f"line {i} of a text that {i * i % 97}\n" for i in range(lines))


def long_row(name, command, tally, folder):
    command = [os.path.realpath(shutil.which(command[0]))] + command[1:]
    native = min(seconds(command, folder) for _ in range(3))
    file, result = "long.tally", "long.json"
    profile = min(seconds([tally, "profile", "-o", file, "--", *command], folder)
                  for _ in range(2))
    translate = min(seconds([tally, "verify", "--profile=" + file, "--once", "--format=json",
                             "-o", result, "--engine=translate", "--", *command], folder, (0, 1))
                    for _ in range(2))
    with open(os.path.join(folder, result), encoding="utf-8") as f:
        verdict = json.load(f)
    print(f"| {name} | {native:.2f} | {profile:.2f} | {translate:.2f} | {translate / native:.1f} "
          f"| {'yes' if verdict['verified'] else len(verdict['findings'])} |", flush=True)


def long_table(wanted, tally):
    print("| program | native s | profile s | translation s | translation/native | verified |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="verify-table-") as folder:
        for name in wanted or LONG:
            command, lines = LONG[name]
            write_text(folder, lines)
            long_row(name, command, tally, folder)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--tally", default=os.path.join(root, "build", "release", "tally"))
    parser.add_argument("--size", type=int, default=500, help="lines of the input text")
    parser.add_argument("--only", default="")
    parser.add_argument("--long", action="store_true", help="runs of seconds, under translation")
    options = parser.parse_args()
    if options.long:
        return long_table([n for n in options.only.split(",") if n],
                          os.path.abspath(options.tally))
    wanted = options.only.split(",") if options.only else list(COMMANDS)
    print("| program | native s | profile s | traps s | translation s | traps/native "
          "| translation/native | blocks | stops/block | us/stop | verified |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="verify-table-") as folder:
        write_text(folder, options.size)
        for name in wanted:
            row(name, COMMANDS[name], os.path.abspath(options.tally), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
