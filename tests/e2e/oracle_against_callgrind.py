#!/usr/bin/env python3
"""The oracle itself: on small runs of real programs it counts what callgrind counts."""
import csv
import os

import against_callgrind as against
import processes


def stepper_counts(_tally, command, folder, stdin, env):
    prefix = os.path.join(folder, "oracle")
    full = [os.environ["STEPPER"], "-o", prefix, "--"] + command
    done = processes.run(full, folder, "stepper", against.TIMEOUT_S, stdin=stdin, env=env)
    with open(prefix + ".instructions.csv", encoding="utf-8", newline="") as f:
        rows = csv.DictReader(f)
        return done, {(r["module"], int(r["address"], 16)): int(r["count"]) for r in rows}


text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 12)
against.check([against.need("gzip"), "-9", "-c", text], counter=stepper_counts)
