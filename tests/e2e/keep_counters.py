#!/usr/bin/env python3
"""Tally is killed in the middle of a run with --keep-counters: what was counted until then comes
back, exact but for the procedures that are named, and each of those within one for each thread.

The programs keep count of themselves in memory that outlives them, a file.
"""
import json
import os
import random
import re
import signal
import struct
import subprocess
import time

from processes import alive
from refusal import TALLY, WORK, accepted, compile_c, complain, finish, path, profile, refused

SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 30)
RANDOM = random.Random(SEED)
print(f"SEED={SEED}")
JOURNAL = 128 << 30  # where it begins in the file (src/ledger/kept_format.h)

PROGRAM = compile_c(
    "kept",
    r"""
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/time.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile long* done;  /* rounds of each slot; behind 64: who has it */
    static volatile long sink;
    static sigjmp_buf out;
    __attribute__((noinline)) void leaf(long i) { sink += i; }
    __attribute__((noinline)) void work(long i) {
      leaf(i);
      leaf(i + 1);
      if (i % 3 == 0) leaf(i + 2);
    }
    __attribute__((noinline)) void handler(int s) { leaf(s); done[1]++; }
    __attribute__((noinline)) void deep(long i) { leaf(i); longjmp(out, 1); }
    __attribute__((noinline)) void middle(long i) { deep(i); leaf(0); }
    __attribute__((noinline)) void rounds(long slot) {
      done[64 + slot] = getpid();
      for (long i = 0;; i++) { work(i); done[slot] = i + 1; }
    }
    static void* thread(void* p) { rounds((long)p); return p; }
    int main(int argc, char** argv) {
      int fd = open(argv[2], O_RDWR | O_CREAT, 0600);
      ftruncate(fd, 4096);
      done = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      pthread_t t;
      if (!strcmp(argv[1], "short")) { work(1); return 3; }
      if (!strcmp(argv[1], "threads")) {
        for (long i = 1; i < 4; i++) pthread_create(&t, 0, thread, (void*)i);
      }
      if (!strcmp(argv[1], "children")) {
        if (fork() == 0) { execl(argv[0], argv[0], "short", argv[2], (char*)0); }
        wait(0);
        for (long i = 1; i < 3; i++) if (fork() == 0) rounds(i);
      }
      if (!strcmp(argv[1], "signals")) {
        struct itimerval every = {{0, 1000}, {0, 1000}};
        signal(SIGALRM, handler);
        setitimer(ITIMER_REAL, &every, 0);
      }
      if (!strcmp(argv[1], "jumps")) {
        for (volatile long i = 0;; i++) { if (!setjmp(out)) middle(i); done[0] = i + 1; }
      }
      rounds(0);
    }
    """,
    "-pthread",
)
SYMBOLS = {
    line.split()[-1]: hex(int(line.split()[0], 16))
    for line in subprocess.run(
        ["nm", PROGRAM], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    if len(line.split()) == 3
}


def slots(name):
    with open(path(name), "rb") as f:
        return struct.unpack("<128q", f.read(1024))


def killed_run(how, what):
    """Runs the program, kills Tally at some moment; the values that the program has kept."""
    for name in ("kept.file", "own"):
        if os.path.exists(path(name)):
            os.unlink(path(name))
    tally = subprocess.Popen(
        [TALLY, "profile", "--keep-counters=" + path("kept.file"), "-o", path("never.tally"), "--",
         PROGRAM, how, path("own")],
        cwd=WORK, stdin=subprocess.DEVNULL,
    )
    last = {"children": 2, "threads": 3}.get(how, 0)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # all that it starts is under way
        if os.path.exists(path("own")) and os.path.getsize(path("own")) >= 1024:
            if slots("own")[last] > 0 and slots("own")[0] > 0:
                break
        time.sleep(0.01)
    time.sleep(RANDOM.uniform(0, 0.4))
    tally.kill()
    tally.wait()
    done = accepted(["recover", path("kept.file"), "-o", path("back.tally")], what, quiet=False)
    pids = [pid for pid in slots("own")[64:68] if pid > 0]
    left = [pid for pid in pids if alive(pid)]
    if left:
        complain(f"{what}: left running: {left}")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    if os.path.exists(path("never.tally")):
        complain(f"{what}: there is a profile, although Tally was killed")
    for name in os.listdir(WORK):
        if name.startswith("never.tally.partial"):
            os.unlink(path(name))
    return slots("own"), done.stderr.decode()


def counts(number):
    """Of each procedure of the program, by its name; and the report."""
    more = [f"--run={number}"]
    asked = accepted(["report", path("back.tally"), "--format=json", *more], "report")
    report = json.loads(asked.stdout)
    text = accepted(["dump", "instructions", path("back.tally"), *more], "dump").stdout.decode()
    result = {}
    for line in text.splitlines()[1:]:
        module, _, address, count = line.rsplit(",", 3)
        for name, at in SYMBOLS.items():
            if module == PROGRAM and address == at:
                result[name] = int(count)
    return result, report


def leaves(rounds):
    return 2 * rounds + (rounds + 2) // 3


def check(what, number, done, threads=1, extra=0):
    """`done`: rounds of each thread of the run.  One more may be under way in each."""
    got, report = counts(number)
    if report["run"]["ended"] != "monitor lost":
        complain(f"{what}: run {number} ended {report['run']['ended']!r}")
    named = [re.search(r"\+(0x[0-9a-f]+)$", issue["scope"]) for issue in report["issues"]]
    named = [match.group(1) for match in named if match]
    if not named:
        complain(f"{what}: no procedure is named: {report['issues']}")
    amount = sum(issue["amount"] for issue in report["issues"] if "+0x" in issue["scope"])
    if amount > 2 * threads + 1:
        complain(f"{what}: too much is named for {threads} threads: {report['issues']}")
    if len(report["flow"]["faults"]) > 3 * threads:
        complain(f"{what}: {report['flow']['faults']}")

    def within(name, low, high):
        slack = threads if SYMBOLS[name] in named else 0
        if not low - slack <= got.get(name, 0) <= high + slack:
            complain(f"{what}: {name} {got.get(name)}, expected {low} to {high}; named {named}")

    within("work", sum(done), sum(d + 1 for d in done))
    within("leaf", sum(map(leaves, done)) + extra, sum(leaves(d + 1) for d in done) + extra + 1)
    within("rounds", threads, threads)
    return got, report


for _ in range(4):
    own, said = killed_run("alone", "one thread")
    check("one thread", 1, own[:1])
    # Where it was, the flow may be off, too, and is then named block by block.
    if said.count("a thread was in this procedure") != 1 or said.count("tally: not exact") > 4:
        complain(f"one thread: {said}")
for _ in range(4):
    own, _ = killed_run("threads", "threads")
    check("threads", 1, own[:4], threads=4)
for _ in range(3):
    own, _ = killed_run("signals", "signals")
    got, report = check("signals", 1, own[:1], extra=own[1])
    if not own[1] - 1 <= got["handler"] <= own[1] + 2:
        complain(f"signals: {got['handler']} handlers, the program says {own[1]}")
for _ in range(3):
    own, _ = killed_run("jumps", "jumps")
    got, report = counts(1)
    for name in ("middle", "deep", "leaf"):
        if not own[0] - 1 <= got[name] <= own[0] + 2:
            complain(f"jumps: {name} {got[name]}, the program says {own[0]}")
for _ in range(3):
    own, _ = killed_run("children", "children")
    runs = json.loads(accepted(["report", path("back.tally"), "--format=json"], "r").stdout)["runs"]
    by_pid = {run["pid"]: run for run in runs}
    for slot in range(3):
        check(f"children, slot {slot}", by_pid[own[64 + slot]]["number"], own[slot:slot + 1])
    finished = [run for run in runs if run["ended"] == "status 3"]
    if len(finished) != 1 or len(runs) != 5:
        complain(f"children: {runs}")
    elif counts(finished[0]["number"])[0].get("leaf") != 2:
        complain(f"children: the one that had ended: {counts(finished[0]['number'])}")
    for name in os.listdir(WORK):
        if name.startswith("kept.file."):
            os.unlink(path(name))

# ---- files that are none, or not any more ------------------------------------------------------


def variant(name, change):
    subprocess.run(["cp", "--sparse=always", path("kept.file"), path(name)], check=True)
    with open(path(name), "r+b") as f:
        change(f)
    return path(name)


def flip(at):
    def change(f):
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 0x55]))
    return change


def recover_refused(file, what, says):
    refused(["recover", file, "-o", path("no.tally")], what, 125, says)
    if os.path.exists(path("no.tally")):
        complain(f"{what}: there is a profile")


killed_run("alone", "to be damaged")
journal = os.path.getsize(path("kept.file")) - JOURNAL
for _ in range(20):
    at = RANDOM.randrange(journal // 2)
    recover_refused(variant("flipped", flip(JOURNAL + at)), f"a byte at {at}", ["damaged"])
for at in range(0, journal, journal // 10):
    # A journal that ends in the middle of a record: what is in front of it counts.
    file = variant("torn", lambda f, at=at: f.truncate(JOURNAL + at))
    done = subprocess.run([TALLY, "recover", file, "-o", path("torn.tally")],
                          capture_output=True, timeout=60, check=False)
    if done.returncode not in (0, 125) or (done.returncode and done.stderr.count(b"\n") != 1):
        complain(f"torn at {at}: {done.returncode} {done.stderr.decode()}")


def checksum(payload):
    value = 0x811C9DC5
    for byte in payload:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def nonsense(f):
    """A record that is whole, but makes no sense; small ones make the most difference."""
    f.seek(JOURNAL)
    data = f.read()
    records = []
    at = 0
    while at + 8 <= len(data):
        size = struct.unpack_from("<I", data, at)[0]
        records.append((at, size))
        at += 8 + size
    at, size = RANDOM.choice(records) if RANDOM.random() < 0.7 else records[0]
    payload = bytearray(data[at + 8 : at + 8 + size])
    for _ in range(RANDOM.choice((1, 1, 3))):
        payload[RANDOM.randrange(len(payload))] = RANDOM.choice((0, 1, 0x7F, 0x80, 0xFF, 7, 8))
    f.seek(JOURNAL + at)
    f.write(struct.pack("<II", size, checksum(payload)) + bytes(payload))


for number in range(60):
    file = variant("nonsense", nonsense)
    done = subprocess.run([TALLY, "recover", file, "-o", path("nonsense.tally")],
                          capture_output=True, timeout=60, check=False)
    if done.returncode not in (0, 125):
        complain(f"nonsense {number}: {done.returncode} {done.stderr.decode()[:500]}")
        subprocess.run(["cp", "--sparse=always", file, f"{file}.{number}"], check=True)
recover_refused(variant("cut", lambda f: f.truncate(1 << 20)), "cut off", ["cut off"])
recover_refused(variant("newer", flip(16)), "another version", ["another version"])
recover_refused(variant("foreign", flip(0)), "foreign", ["no file of --keep-counters"])
recover_refused("/dev/null", "an empty file", ["no file of --keep-counters"])
recover_refused(path("nowhere"), "no file", ["no such file"])

# ---- before and after --------------------------------------------------------------------------

keep = "--keep-counters=" + path("kept.file")
command = ["--", PROGRAM, "short", path("own")]
refused(["profile", keep, *command], "the file exists", 125, ["recover"])
nowhere = ["profile", "--keep-counters=/nowhere/x", *command]
refused(nowhere, "no such folder", 125, ["No such file"])
refused(["profile", "--pid=1", keep], "with --pid", 2, ["--pid"])
os.unlink(path("kept.file"))
accepted(["profile", keep, "-o", path("short.tally"), *command], "to its end", status=3)
left = [name for name in os.listdir(WORK) if name.startswith("kept.file")]
if left:
    complain(f"a run that ended by itself leaves {left}")

tally = subprocess.Popen(
    [TALLY, "profile", keep, "-o", path("x.tally"), "--", PROGRAM, "alone", path("own")], cwd=WORK
)
while not os.path.exists(path("kept.file")):
    time.sleep(0.01)
time.sleep(0.3)
recover_refused(path("kept.file"), "still running", ["still going on"])
tally.terminate()
tally.wait()
finish()
