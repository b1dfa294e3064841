"""Runs of a small program under Tally, with a folder of what earlier runs have left."""
import csv
import json
import os
import subprocess

from refusal import TALLY, accepted, complain, path

# What says how a count was had, which depends on what earlier runs have left.
HOW = ("source", "found", "procedure", "counter")
_runs = [0]


class Run:
    """What a run printed and counted of the program itself (libc looks at addresses, which change
    from run to run), and the facts of its first process.  Complains unless all of it is exact."""

    def __init__(self, program, arguments, cache, options=(), kinds=("instructions", "edges")):
        _runs[0] += 1
        name = path(f"run{_runs[0]}.tally")
        line = [TALLY, "profile", "-o", name, *options, "--", program, *arguments]
        done = subprocess.run(line, capture_output=True, text=True, check=False,
                              env=dict(os.environ, TALLY_CACHE=str(cache)))
        if done.returncode != 0 or done.stderr:
            complain(f"{' '.join(line)}: {done.returncode} {done.stderr}")
        self.stdout = done.stdout
        dump = json.loads(accepted(["dump", "profile", name, "--format=json"], "dump").stdout)
        self.facts = {}
        for fact in dump["run"]:
            self.facts.setdefault(fact["name"], fact["value"])
        report = json.loads(accepted(["report", name, "--format=json"], "report").stdout)
        if report["flow"]["balanced"] is not True or report["issues"]:
            complain(f"{' '.join(line)}: not balanced, or not exact: {report['issues']}")
        self.counts = [self.own(what, name, program) for what in kinds]

    @staticmethod
    def own(what, name, program):
        """Rows of the program's own code, the count last."""
        dump = accepted(["dump", what, name], what).stdout.decode()
        return sorted(tuple(value for key, value in row.items() if key not in HOW)
                      for row in csv.DictReader(dump.splitlines()) if row["module"] == program)

    def fact(self, name):
        return int(self.facts[name])


def same(what, one, other):
    """Complains unless two runs printed the same and executed the same, each as often."""
    if one.stdout != other.stdout:
        complain(f"{what}: printed {other.stdout!r} instead of {one.stdout!r}")
    for rows in zip(one.counts, other.counts):
        left, right = ([row for row in each if row[-1] != "0"] for each in rows)
        if left != right or not left:
            complain(f"{what}: {sorted(set(left) ^ set(right))[:6]}")
