#!/usr/bin/env python3
"""`tally verify` where standard input or output are not what they were in the profile's run.

  output    made as it was (file, pipe, socket, terminal, /dev/null): verified by both, and said
  delivered what the first run prints arrives, once
  wrong     a count that does not depend on it stays *wrong*
  input     from a file, through a pipe as then; what was read then is not known: *environment*
  unread    a program that does not look at its input does not depend on it
  once      without a run as it was then nothing is called wrong
  unknown   of profiles that do not say what they were: another kind is tried
"""
import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import threading

import processes
from verifying import SOURCES, TALLY, WORK, expect, finish, plain_edges, ranges_of, write_plain

KINDS = ("file", "null", "pipe", "socket", "terminal")
WORDS = {"file": "a regular file", "null": "/dev/null", "pipe": "a pipe", "socket": "a socket",
         "terminal": "a terminal"}
ENGINES = ("trap", "translate")
OUTPUT = os.path.join(WORK, "printed")


def read_all(fd, printed):
    with contextlib.suppress(OSError):  # a terminal that nobody has open any more
        while data := os.read(fd, 65536):
            printed.append(data)
    os.close(fd)


def open_output(kind):
    """What the program is given, and what to read to the end, if anything."""
    if kind == "file":
        return os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), None
    if kind == "null":
        return os.open(os.devnull, os.O_WRONLY), None
    if kind == "pipe":
        ours, theirs = os.pipe()
        return theirs, ours
    if kind == "socket":
        ours, theirs = socket.socketpair()
        return theirs.detach(), ours.detach()
    ours, theirs = pty.openpty()
    return theirs, ours


def run(command, output="null", stdin=subprocess.DEVNULL):
    """Status, what was printed, and standard error; a `bytes` input goes through a pipe."""
    theirs, ours = open_output(output)
    printed = []
    reader = None
    if ours is not None:
        reader = threading.Thread(target=read_all, args=(ours, printed))
        reader.start()
    through_pipe = isinstance(stdin, bytes)
    child = subprocess.Popen(["/usr/bin/setarch", "-R", *command], cwd=WORK, stdout=theirs,
                             stdin=subprocess.PIPE if through_pipe else stdin,
                             stderr=subprocess.PIPE, env=processes.ENVIRONMENT)
    os.close(theirs)
    _, errors = child.communicate(stdin if through_pipe else None, timeout=100)
    if reader is not None:
        reader.join()
    elif output == "file":
        with open(OUTPUT, "rb") as f:
            printed.append(f.read())
    return child.returncode, b"".join(printed), errors.decode()


def profile(command, label, **more):
    file = os.path.join(WORK, label + ".tally")
    status, _, errors = run([TALLY, "profile", "-o", file, "--", *command], **more)
    expect(status == 0, f"profile {label}: status {status}: {errors}")
    return file


def verify(command, file, *options, **more):
    result = os.path.join(WORK, "verdict.json")
    status, printed, errors = run([TALLY, "verify", "--profile=" + file, "--format=json", "-o",
                                   result, *options, "--", *command], **more)
    with open(result, encoding="utf-8") as f:
        return status, printed, errors, json.load(f)


def write_n(number):
    with open(os.path.join(WORK, "n"), "w", encoding="utf-8") as f:
        f.write(f"{number}\n")


def outputs(program):
    files = {kind: profile([program], kind, output=kind) for kind in KINDS}
    for then in KINDS:
        for now in KINDS:
            for engine in ENGINES if "pipe" in (then, now) else ENGINES[:1]:
                label = f"{then} -> {now}, {engine}"
                status, printed, errors, verdict = verify([program], files[then],
                                                          "--engine=" + engine, output=now)
                expect(status == 0 and verdict["verified"],
                       f"{label}: status {status}: {verdict['findings'][:2]} {verdict['remarks']}")
                said = [r for r in verdict["remarks"] if r.startswith("standard output was " +
                        WORDS[then] + " when the profile was taken, and is " + WORDS[now])]
                expect(bool(said) == (then != now), f"{label}: {verdict['remarks']}")
                expect(not errors, f"{label}: {errors}")
                wanted = b"" if now == "null" else b"114\n"
                expect(printed.replace(b"\r", b"") == wanted, f"{label}: printed {printed}")
    return files


def stays_wrong(program, files):
    """The file `n` has changed: what `fixed` does is not what the profile says."""
    write_n(101)
    for now in ("null", "file"):
        status, _, _, verdict = verify([program], files["pipe"], output=now)
        names = {f.get("name") for f in verdict["findings"] if f["reason"] == "wrong"}
        expect(status == 1 and verdict["verdict"] == "WRONG" and "fixed" in names,
               f"a wrong count, {now}: {verdict['verdict']} {names}")
        others = [f for f in verdict["findings"] if f.get("name") == "by_output"]
        expect(not others, f"a wrong count, {now}: {others[:2]}")
    write_n(100)


def without_another_run(program, files):
    status, _, _, verdict = verify([program], files["pipe"], "--once", output="file")
    reasons = {f["reason"] for f in verdict["findings"]}
    expect(status == 1 and reasons == {"unexplained"}, f"once: {reasons}")
    expect(any(r.endswith("; no run had what it was then: it was not wanted")
               for r in verdict["remarks"]), f"once: {verdict['remarks']}")


def inputs(program):
    text = os.path.join(WORK, "text")
    with open(text, "w", encoding="utf-8") as f:
        f.write("some words\n" * 20)
    with open(text, "rb") as f:
        content = f.read()
    command = [program, "read"]
    from_pipe = profile(command, "from-pipe", stdin=content)
    with open(text, "rb") as f:
        from_file = profile(command, "from-file", stdin=f)
    for engine in ENGINES:
        with open(text, "rb") as f:
            status, _, errors, verdict = verify(command, from_pipe, "--engine=" + engine, stdin=f)
        expect(status == 0 and verdict["verified"] and not errors,
               f"through a pipe, {engine}: {verdict['findings'][:2]}{verdict['remarks']}{errors}")
        status, _, errors, verdict = verify(command, from_file, "--engine=" + engine)
        expect(status == 1 and verdict["verdict"] == "not verified",
               f"no input, {engine}: {verdict['verdict']}")
        reasons = {(f["reason"], f["evidence"]) for f in verdict["findings"]
                   if f.get("name") == "by_input"}
        expect([r for r, _ in reasons] == ["environment"] and
               "standard input was a regular file, 220 bytes, at 0" in list(reasons)[0][1],
               f"no input, {engine}: {reasons}")
        lines = errors.splitlines()
        expect(len(lines) == 1 and lines[0].startswith("tally: standard input was a regular file"),
               f"no input, {engine}: {lines}")
    # Without an argument it does not look: what is wrong is, whatever the input is.
    with open(text, "rb") as f:
        unread = profile([program], "unread", stdin=f)
    status, _, _, verdict = verify([program], unread)
    expect(status == 0 and verdict["verified"], f"unread: {verdict['findings'][:2]}")
    write_n(101)
    status, _, _, verdict = verify([program], unread)
    names = {f.get("name") for f in verdict["findings"] if f["reason"] == "wrong"}
    expect(status == 1 and "fixed" in names, f"unread, wrong: {verdict['verdict']} {names}")
    write_n(100)


def unknown(program):
    edges = plain_edges(profile([program], "plain", output="file"), program)
    for engine in ENGINES:
        _, _, _, verdict = verify([program], write_plain(edges, "plain"), "--engine=" + engine)
        found = {(f["name"], f["reason"]) for f in verdict["findings"] if "name" in f}
        expect(found == {("by_output", "environment")}, f"unknown, {engine}: {found}")
        begin, end = ranges_of(program)["fixed"]
        edge = next(e for e in edges if all(begin <= int(a, 16) < end for a in e))
        wrong = dict(edges)
        wrong[edge] += 1
        _, _, _, verdict = verify([program], write_plain(wrong, "off"), "--engine=" + engine)
        found = {(f["name"], f["reason"]) for f in verdict["findings"] if "name" in f}
        expect(found == {("by_output", "environment"), ("fixed", "wrong")},
               f"unknown and wrong, {engine}: {found}")


def main():
    program = os.path.join(WORK, "by_descriptors")
    source = os.path.join(SOURCES, "by_descriptors.c")
    subprocess.run(["gcc", "-O1", "-g", source, "-o", program], check=True, cwd=WORK)
    write_n(100)
    files = outputs(program)
    stays_wrong(program, files)
    without_another_run(program, files)
    inputs(program)
    unknown(program)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
