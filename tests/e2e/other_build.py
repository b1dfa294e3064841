#!/usr/bin/env python3
"""A profile of another build of the program is refused as feedback and for annotate; the same
build is accepted from another path."""
import os
import shutil

from refusal import accepted, compile_c, finish, path, profile, refused

SOURCE = "int f(int n) { return n * %d; } int main(int c, char** v) { return f(c) - %d; }"
first = compile_c("first", SOURCE % (3, 3))
second = compile_c("second", SOURCE % (5, 5) + " int more(int x) { return x / 3; }")
os.mkdir(path("bin"))
program = path("bin/program")
annotate = ["annotate", path("one.tally"), "--function=main"]


def feedback(name):
    return f"--placement=feedback={path(name)}"


shutil.copy(first, program)
accepted(profile("one.tally", program), "profile of the first build")
accepted(["profile", "-o", path("fb.tally"), feedback("one.tally"), "--", program],
         "feedback of the same build")
accepted(annotate, "annotate of the same build")
os.remove(program)
shutil.copy(second, program)
refused(["profile", "-o", path("x.tally"), feedback("one.tally"), "--", program],
        "feedback of another build", 125, ["build"])
refused(annotate, "annotate of another build", 125, ["build"])
os.remove(program)
refused(annotate, "annotate, program gone", 125, ["program"])
refused(["profile", "-o", path("x.tally"), feedback("missing"), "--", "/bin/true"],
        "missing feedback", (125, 127), ["missing"])
finish()
