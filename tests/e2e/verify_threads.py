#!/usr/bin/env python3
"""`tally verify` by traps of programs with threads: one at a time, so that blocks can be emulated.

  stops    fewer than half a stop for each block
  meets    threads that wait for each other without a system call, or for a page, do meet
  lengths  whatever the turns' lengths: what does not depend on them agrees in all runs
"""
import json
import os
import subprocess
import sys

from verifying import (SOURCES, TALLY, WORK, expect, finish, plain_edges, ranges_of, run,
                       write_plain)


def compile_program(name):
    path = os.path.join(WORK, name)
    source = os.path.join(SOURCES, name + ".c")
    subprocess.run(["gcc", "-O1", "-g", "-no-pie", "-pthread", source, "-o", path], check=True,
                   cwd=WORK)
    return path


def verify(program, file, label, *options):
    result = os.path.join(WORK, label + ".json")
    done = run([TALLY, "verify", "--engine=trap", "--profile=" + file, "--format=json", "-o",
                result, *options, "--", program], label)
    with open(result, encoding="utf-8") as f:
        return done, json.load(f)


def main():
    program = compile_program("meets")
    file = os.path.join(WORK, "meets.tally")
    native = run([program], "native")
    expect(native.stdout in (b"400 34290 34290 1\n", b"400 34290 34290 2\n"),
           f"natively: {native.stdout}")
    done = run([TALLY, "profile", "-o", file, "--", program], "profile")
    expect(done.status == 0 and done.stdout == native.stdout, f"profile: {done.end()}")
    for label, *options in (("ahead",), ("branches", "--no-ahead")):
        done, verdict = verify(program, file, label, *options)
        expect(done.status == 1 and done.stdout == native.stdout,
               f"{label}: {done.end()} {done.stdout}")
        expect(verdict["complete"] and verdict["lost"] == 0 and verdict["threads"] == 6,
               f"{label}: {verdict['lost']} lost, {verdict['threads']} threads")
        wrong = [f for f in verdict["findings"] if f["reason"] == "wrong"]
        expect(not wrong, f"{label}: {wrong[:3]}")
        stops = verdict["cost"]["stops_per_block"]
        expect(stops < 0.05 if label == "ahead" else stops > 0.5, f"{label}: {stops} stops a block")
    rarely = compile_program("rarely")
    file = os.path.join(WORK, "rarely.tally")
    done = run([TALLY, "profile", "-o", file, "--", rarely], "profile-rarely")
    edges = plain_edges(file, rarely)
    begin, end = ranges_of(rarely)["work"]
    hot = max((e for e in edges if all(begin <= int(a, 16) < end for a in e)), key=edges.get)
    edges[hot] += 1
    done, verdict = verify(rarely, write_plain(edges, "off"), "off")
    found = [(f["address"], f["claimed"] - f["counted"], f["reason"]) for f in verdict["findings"]]
    expect(found == [(hot[0], 1, "wrong")], f"lengths: {found}")
    expect(found and "6 runs agree" in verdict["findings"][0]["evidence"],
           f"lengths: {verdict['findings']}")
    expect(verdict["cost"]["stops_per_block"] < 0.5,
           f"rarely: {verdict['cost']['stops_per_block']} stops a block")
    return finish()


if __name__ == "__main__":
    sys.exit(main())
