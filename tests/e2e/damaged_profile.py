#!/usr/bin/env python3
"""Profiles that are damaged, cut, foreign or from the future are refused in one line by every
command that reads one; never a crash, never numbers from a broken file."""
import random
import shutil

import refusal
from refusal import accepted, complain, finish, path, profile, refused, run

accepted(profile("good.tally", "/bin/true"), "good profile")
good = open(path("good.tally"), "rb").read()
READERS = [["report"], ["dump", "instructions"], ["dump", "edges"], ["dump", "blocks"]]


def damaged(name, data, readers=READERS):
    with open(path(name), "wb") as f:
        f.write(data)
    for reader in readers:
        refused([*reader, path(name)], f"{' '.join(reader)} of {name}", 125, [name])


damaged("empty", b"")
damaged("text", b"this is no profile\n" * 100)
damaged("zeros", bytes(8192))
damaged("random", random.Random(1).randbytes(20000))
damaged("cut_100", good[:100])
damaged("cut_half", good[: len(good) // 2])
damaged("cut_last", good[:-1000])
for reader in READERS:
    refused([*reader, path("missing")], "missing profile", (125, 127), ["missing"])
refused(["report", refusal.WORK], "a folder as profile", 125)
refused(["report", "/bin/true"], "a program as profile", 125)

# Any other SQLite file, and a profile of a version that does not exist yet.
sqlite = shutil.which("sqlite3")
if sqlite:
    import subprocess

    statements = "create table t(a); insert into t values(1);"
    subprocess.run([sqlite, path("foreign"), statements], check=True)
    refused(["report", path("foreign")], "foreign database", 125, ["foreign"])
    shutil.copy(path("good.tally"), path("future"))
    subprocess.run([sqlite, path("future"), "pragma user_version=99999;"], check=True)
    refused(["report", path("future")], "profile of a later version", 125, ["newer"])

# Single bytes: refused, or it did not matter; a checksum should see most.
chosen = random.Random(2)
seen = 0
for number in range(40):
    data = bytearray(good)
    at = chosen.randrange(100, len(data))
    data[at] ^= 1 << chosen.randrange(8)
    with open(path("flipped"), "wb") as f:
        f.write(data)
    done = run(["dump", "instructions", path("flipped")], f"byte {at:#x} flipped")
    if done.status not in (0, 125):
        complain(f"byte {at:#x} flipped: {done.end()}")
    seen += done.status == 125
print(f"{seen} of 40 flipped bytes were noticed")
finish()
