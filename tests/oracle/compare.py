"""Compares what Tally counted with what the single-stepper saw.

Instructions are compared address by address in all modules.  Tally's edges join blocks; an edge is
the transition from the last instruction of its block to the first of the other, so the stepper's
transitions are summed by (from, to) and compared with Tally's edges summed the same way.  There are
no edges for returns.  Edges of kind call_return are compared with the number of returns that met
their call on the stepper's shadow stack.

Each function returns a list of sentences; an empty list is agreement.
"""
import csv
from collections import defaultdict

SHOWN_MAX = 12


def rows(path):
    with open(path, encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def place(module, address):
    """Code without a file has one name here; its addresses are the process's own."""
    made = module in ("[anonymous]", "[stack]", "[heap]") or module.startswith(
        ("[generated", "/memfd:", "/dev/zero")
    )
    return ("[generated]" if made else module, int(address, 16))


def rows_of(data):
    return list(csv.DictReader(data.decode().splitlines()))


def short(place):
    module, address = place
    return f"{module.rsplit('/', 1)[-1]}+{address:#x}"


def differences(what, ours, theirs, describe):
    """`ours` is Tally's, `theirs` the oracle's; a missing key counts 0."""
    out = []
    for key in sorted(set(ours) | set(theirs)):
        a, b = ours.get(key, 0), theirs.get(key, 0)
        if a != b:
            out.append(f"{what} {describe(key)}: tally {a}, oracle {b}")
    return shortened(out, what)


def shortened(out, what):
    if len(out) > SHOWN_MAX:
        return out[:SHOWN_MAX] + [f"... and {len(out) - SHOWN_MAX} more {what}s that differ"]
    return out


class Oracle:
    """The stepper's five files."""

    def __init__(self, prefix):
        self.instructions = {
            place(r["module"], r["address"]): int(r["count"])
            for r in rows(prefix + ".instructions.csv")
        }
        self.edges = defaultdict(int)
        self.classes = {}
        for r in rows(prefix + ".edges.csv"):
            start = place(r["from_module"], r["from"])
            self.edges[start, place(r["to_module"], r["to"])] += int(r["count"])
            self.classes[start] = r["class"]
        self.returned = {
            place(r["module"], r["address"]): int(r["count"])
            for r in rows(prefix + ".calls.csv")
        }
        self.ends = {
            place(r["module"], r["address"]): int(r["count"])
            for r in rows(prefix + ".ends.csv")
        }
        self.threads = sorted(int(r["count"]) for r in rows(prefix + ".threads.csv"))


class Counted:
    """Tally's three dumps."""

    def __init__(self, instructions, blocks, edges):
        self.instructions = {}
        for r in rows_of(instructions):
            key = place(r["module"], r["address"])
            self.instructions[key] = self.instructions.get(key, 0) + int(r["count"])
        self.instructions = {k: v for k, v in self.instructions.items() if v}
        self.last = defaultdict(set)
        self.blocks = defaultdict(int)
        self.extent = defaultdict(int)
        for r in rows_of(blocks):
            block = place(r["module"], r["block"])
            self.last[block].add(place(r["module"], r["last_instruction"]))
            self.blocks[block] += int(r["count"])
            self.extent[block] = max(self.extent[block], int(r["size_bytes"]))
        self.transitions = defaultdict(int)
        self.call_returns = defaultdict(int)
        self.edge_rows = defaultdict(int)
        self.problems = []
        for r in rows_of(edges):
            self.add_edge(r)

    def add_edge(self, r):
        start = place(r["module"], r["from_block"])
        to = place(r["to_module"], r["to_block"])
        count = int(r["count"])
        for end in (start, to):
            if end not in self.extent:
                self.problems.append(f"edge names block {short(end)}, which `dump blocks` lacks")
        if len(self.last[start]) != 1:
            return
        last = next(iter(self.last[start]))
        self.edge_rows[start, to, r["kind"]] += count
        if r["kind"] == "call_return":
            self.call_returns[last] += count
        elif count:
            self.transitions[last, to] += count

    def unclear(self):
        """Instructions that end blocks that begin at one address and end at several (generations of
        code that changes): their edges cannot be told apart by the beginning."""
        several = [lasts for lasts in self.last.values() if len(lasts) > 1]
        return set().union(*several)


def instructions(counted, oracle):
    return differences("instruction", counted.instructions, oracle.instructions, short)


def blocks(counted, oracle):
    """A block's count is how often its first instruction was reached, even if that one faulted."""
    theirs = {b: oracle.instructions.get(b, 0) + oracle.ends.get(b, 0) for b in counted.blocks}
    return differences("block", counted.blocks, theirs, short)


def edges(counted, oracle):
    last, unclear = set().union(*counted.last.values()), counted.unclear()
    inside = inside_blocks(counted)
    theirs, out = {}, list(counted.problems)
    for (start, to), count in oracle.edges.items():
        if oracle.classes[start] == "ret" or start in unclear:
            continue
        if start in last:
            theirs[start, to] = count
        elif not inside(start, to):
            out.append(f"transition {short(start)} -> {short(to)} ({count} times) is in no block")
    ours = {e: n for e, n in counted.transitions.items() if e[0] not in unclear}
    return shortened(out, "edge") + differences(
        "edge", ours, theirs, lambda e: f"{short(e[0])} -> {short(e[1])}"
    )


def inside_blocks(counted):
    """Answers whether a step from one address to a later one stays within some block."""
    starts = defaultdict(list)
    for (module, block), size in counted.extent.items():
        for page in range(block >> 8, (block + size >> 8) + 1):
            starts[module, page].append((block, block + size))

    def check(start, to):
        (module, a), (to_module, b) = start, to
        near = module == to_module and 0 < b - a <= 15
        return near and any(lo <= a and b < hi for lo, hi in starts[module, a >> 8])

    return check


def threads(report, oracle):
    """Instructions of each thread.  The stepper does not follow children and gives no names."""
    if len(report["runs"]) != 1:
        return []
    ours = sorted(t["instructions"] for t in report["threads"])
    if ours == oracle.threads:
        return []
    return [f"instructions of the threads: tally {ours}, oracle {oracle.threads}"]


def calls(counted, oracle):
    """Calls that came back.  Only calls that Tally ended a block with are compared."""
    theirs = {k: v for k, v in oracle.returned.items() if k in oracle.instructions}
    ours = {k: v for k, v in counted.call_returns.items() if k in theirs or v}
    return differences("call_return of", ours, theirs, short)


def same_counts(what, first, second):
    """Two runs of Tally that placed their counters differently."""
    out = []
    for label, a, b in (
        ("instruction", first.instructions, second.instructions),
        ("edge", dict(first.edge_rows), dict(second.edge_rows)),
    ):
        for key in sorted(set(a) | set(b)):
            if a.get(key, 0) != b.get(key, 0):
                name = short(key) if label == "instruction" else (
                    f"{short(key[0])} -> {short(key[1])} {key[2]}"
                )
                out.append(f"{what}: {label} {name}: {a.get(key, 0)} and {b.get(key, 0)}")
    return shortened(out, what)
