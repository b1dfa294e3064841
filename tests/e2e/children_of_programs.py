#!/usr/bin/env python3
"""Programs that start others: same output and end as natively, every run of theirs balanced and
exact, and as many runs as there were program images."""
import json
import os
import sys

import processes
import refusal
from refusal import accepted, complain, compile_c, finish, path, profile, run

FOLDER = path("things")
os.makedirs(FOLDER)
for number in range(20):
    with open(f"{FOLDER}/file{number}.txt", "w", encoding="ascii") as f:
        f.write(f"line {number}\n" * 50)
with open(path("script"), "w", encoding="ascii") as f:
    f.write('#!/bin/sh\necho "$1"; [ "$1" = done ] || exec "$0" done\n')
os.chmod(path("script"), 0o755)
EXIT_32 = 'void _start(void) { __asm__("mov $1, %eax; mov $5, %ebx; int $0x80"); }'
compile_c("thirty_two", EXIT_32, "-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie")

BASH = """echo a | tr a b | cat; x=$(expr 4 + 5); echo $x; for i in 1 2; do (echo $i); done
sleep 0.1 & wait $!; kill -TERM $$"""
TAR = "tar -C . --sort=name --mtime=@0 -czf - file1.txt file2.txt | tar -tzf -"
PERL = r"""$| = 1; for (1..3) { if (!fork) { print qq($_\n); exit $_ } wait; print $?>>8, qq(\n) }
print `echo back`; system(q(exit 4)); print $?>>8, qq(\n);"""
PYTHON = """import subprocess, os
print(subprocess.run(['echo', 'x'], capture_output=True).stdout)
p = os.fork()
if p == 0: os._exit(9)
print(os.waitpid(p, 0)[1])"""

# Command line, least number of runs.
COMMANDS = {
    "dash": (["dash", "-c", "echo a | cat; x=$(expr 1 + 2); echo $x; (exit 3); echo $?"], 6),
    "bash": (["bash", "-c", BASH], 9),
    "make": (["make", "-j2", "-f", path("Makefile"), "-C", FOLDER], 9),
    "xargs": (["sh", "-c", f"ls {FOLDER}/*.txt | xargs -P2 -n5 wc -c | sort"], 7),
    "find": (["find", FOLDER, "-name", "file1*.txt", "-exec", "head", "-c", "4", "{}", ";"], 12),
    "tar": (["sh", "-c", f"cd {FOLDER}; {TAR}"], 5),
    "perl": (["perl", "-e", PERL], 6),
    "python": (["python3", "-S", "-E", "-c", PYTHON], 3),
    "git": (["git", "-C", FOLDER, "init", "-q", "."], 1),
    "script": ([path("script"), "first"], 2),
    "env": (["env", "A=1", "nice", "-n", "1", "sh", "-c", "echo $A"], 3),
    "sh -c exec": (["sh", "-c", "exec echo $0 hello"], 2),
    "dpkg": (["sh", "-c", "dpkg --list | head -3"], 3),
}
with open(path("Makefile"), "w", encoding="ascii") as f:
    f.write("all: m.o n.o\n\tld -r -o all.o m.o n.o\n\t@echo linked\n"
            "%.o: %.c\n\tgcc -O1 -c -o $@ $<\n")
for name in "mn":
    with open(f"{FOLDER}/{name}.c", "w", encoding="ascii") as f:
        f.write(f"int {name}(int x) {{ return x * {len(name)} + 7; }}\n")


def clean():
    for name in ("m.o", "n.o", "all.o"):
        if os.path.exists(f"{FOLDER}/{name}"):
            os.remove(f"{FOLDER}/{name}")


for name, (command, runs_least) in COMMANDS.items():
    if len(sys.argv) > 1 and name not in sys.argv[1:]:
        continue
    clean()
    native = processes.run(command, refusal.WORK, "native", 60)
    clean()
    file = name.replace(" ", "_") + ".tally"
    done = run(profile(file, *command), name + " (signal)", timeout=200)
    if done.end() != native.end():
        complain(f"{name}: ended with {done.end()}, natively {native.end()}")
    # What runs at the same time may write in another order.
    same = sorted(done.stdout.splitlines()) == sorted(native.stdout.splitlines())
    if not same:
        complain(f"{name}: stdout is {done.stdout[:300]!r}, natively {native.stdout[:300]!r}")
    if done.stderr != native.stderr:
        complain(f"{name}: stderr is {done.stderr.decode(errors='replace')[:600]}")
        continue
    report = json.loads(accepted(["report", path(file), "--format=json"], name + " report").stdout)
    for one in report["runs"]:
        if not one["balanced"] or one["issues"]:
            complain(f"{name}: run {one['number']} ({one['command'][:60]}) is not exact")
    if not report["flow"]["balanced"]:
        complain(f"{name}: the sum is not balanced: {report['flow']['faults'][:3]}")
    if len(report["runs"]) < runs_least:
        complain(f"{name}: {len(report['runs'])} runs, expected at least {runs_least}")

# What cannot be followed runs natively and is named; so do children that are not to be followed.
old = ["sh", "-c", path("thirty_two") + "; echo $?"]
native = run(old, "32-bit, natively")
done = run(profile("old.tally", *old), "32-bit")
refuses = native.stdout == b"126\n"
if refuses:
    print("this kernel runs no 32-bit programs:", native.stderr.decode().strip())
elif native.stdout != b"5\n":
    complain(f"32-bit, natively: stdout {native.stdout!r}")
if done.stdout != native.stdout or (b"32-bit" in done.stderr) == refuses:
    complain(f"32-bit: stdout {done.stdout!r}, stderr {done.stderr!r}")
ignore = ["profile", "--children=ignore", "-o", path("i.tally"), "--"]
done = run([*ignore, "sh", "-c", "(echo a); echo b"], "ignore")
if done.stdout != b"a\nb\n" or b"natively" not in done.stderr:
    complain(f"--children=ignore: stdout {done.stdout!r}, stderr {done.stderr!r}")
finish()
