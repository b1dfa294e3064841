"""Helpers of the tests of `tally verify`: what is expected, and profiles in the plain form."""
import os
import subprocess

import processes

TALLY = os.environ["TALLY"]
WORK = os.environ["WORK"]
SOURCES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "verify")
_problems = []


def expect(condition, words):
    if not condition:
        _problems.append(words)
        print("FAILED: " + words, flush=True)


def finish():
    """To be called last: the test's exit status."""
    print(f"{len(_problems)} problems")
    return 1 if _problems else 0


def run(command, label, **more):
    return processes.run(command, WORK, label, 120, cwd=WORK, **more)


def ranges_of(program):
    """Address ranges of the program's procedures."""
    text = subprocess.run(["nm", "-S", program], check=True, capture_output=True, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return {r[3]: (int(r[0], 16), int(r[0], 16) + int(r[1], 16)) for r in rows if len(r) == 4}


def plain_edges(file, program):
    """Edges within the main program, without calls that came back: as the paper's form has them."""
    out = subprocess.run([TALLY, "dump", "edges", file, "--format=csv"], check=True,
                         capture_output=True, text=True).stdout.splitlines()
    at = {name: i for i, name in enumerate(out[0].split(","))}
    edges = {}
    for row in (line.split(",") for line in out[1:]):
        own = row[at["module"]] == program and row[at["to_module"]] == program
        if own and row[at["kind"]] != "call_return":
            key = (row[at["from_block"]], row[at["to_block"]])
            edges[key] = edges.get(key, 0) + int(row[at["count"]])
    return edges


def write_plain(edges, label):
    path = os.path.join(WORK, label + ".edges")
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(f"{a} {b} {n}\n" for (a, b), n in edges.items())
    return path
