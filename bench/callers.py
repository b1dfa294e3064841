#!/usr/bin/env python3
"""How many increments a profile's run would have spared, had procedures not counted how often they
are entered.  Later runs do not (src/cache/entry_callers.h), so this is for profiles of first runs
and of runs with --no-opt=callers,rest.

Every way into a procedure is known from elsewhere: callers' blocks have counts, indirect branches
have counters.  Where the way from EXIT to the entry is taken as known, the spanning tree has room
for one more edge of the procedure, the heaviest that it can take, and that one needs no counter.
It is not to be had for procedures of which each would need the other's count: those that call
themselves, directly or through others.

Printed for each profile, over the increments that its run made: what the weights of this very run
would need in each procedure by itself (Tally guesses, or knows an earlier run's, and spares flags
and jumps, so less than 1); entries of procedures; and what would be spared if all but the
recursive ones took their entries from their callers, only those that call nothing, and all.

usage: callers.py PROFILE...
"""

import collections
import pathlib
import sqlite3
import sys

EXIT = -1
CALL, INDIRECT_CALL, INDIRECT_JUMP = 4, 5, 3  # profile::EdgeKind


class Profile:
    def __init__(self, path):
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self.increments = database.execute(
            "SELECT sum(value) FROM facts WHERE name = 'counter_increments'").fetchone()[0]
        self.entries, self.entry_block = {}, {}
        addresses = {}
        for procedure, address, entries in database.execute(
                "SELECT id, entry, entries FROM procedures"):
            self.entries[procedure], addresses[procedure] = entries, address
        self.blocks, self.procedure = collections.defaultdict(dict), {}
        for block, procedure, address, count in database.execute(
                "SELECT id, procedure, address, count FROM blocks"):
            self.blocks[procedure][block] = count
            self.procedure[block] = procedure
            if address == addresses[procedure]:
                self.entry_block[procedure] = block
        self.leads_to = collections.defaultdict(set)  # by procedure
        self.edges = collections.defaultdict(list)    # (count, from, to), those within
        for begin, end, kind, count in database.execute(
                "SELECT from_block, to_block, kind, count FROM edges"):
            self.add_edge(begin, end, kind, count)

    def add_edge(self, begin, end, kind, count):
        here, there = self.procedure[begin], self.procedure[end]
        if kind in (CALL, INDIRECT_CALL):
            self.leads_to[here].add(there)
            return
        enters = kind == INDIRECT_JUMP and self.entry_block.get(there) == end
        if here != there or enters:
            self.leads_to[here].add(there)
        self.edges[here].append((count, begin, end if here == there else EXIT))

    def increments_of(self, procedure, knows_entries):
        """The weight of what a maximum spanning tree leaves."""
        left = dict(self.blocks[procedure])
        for count, begin, _ in self.edges[procedure]:
            left[begin] -= count
        leaving = [(count, block, EXIT) for block, count in left.items() if count > 0]
        parent = {}

        def find(node):
            while parent.setdefault(node, node) != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        if not knows_entries and procedure in self.entry_block:
            parent[find(EXIT)] = find(self.entry_block[procedure])
        counted = 0
        for count, begin, end in sorted(self.edges[procedure] + leaving, reverse=True):
            one, other = find(begin), find(end)
            if one == other:
                counted += count
            parent[one] = other
        return counted

    def recursive(self):
        """Procedures that lead to themselves."""
        found, order, lowest, path, on_path = set(), {}, {}, [], set()
        for start in self.entries:
            if start in order:
                continue
            work = [(start, None)]
            while work:
                node, ways = work.pop()
                if ways is None:
                    order[node] = lowest[node] = len(order)
                    path.append(node)
                    on_path.add(node)
                    ways = iter(self.leads_to[node])
                for other in ways:
                    if other not in order:
                        work += [(node, ways), (other, None)]
                        break
                    if other in on_path:
                        lowest[node] = min(lowest[node], lowest[other])
                else:
                    if work:
                        above = work[-1][0]
                        lowest[above] = min(lowest[above], lowest[node])
                    if lowest[node] == order[node]:
                        at = path.index(node)
                        if len(path) - at > 1 or node in self.leads_to[node]:
                            found.update(path[at:])
                        on_path.difference_update(path[at:])
                        del path[at:]
        return found


def report(path):
    profile = Profile(path)
    recursive = profile.recursive()
    sums = collections.Counter()
    for procedure, entries in profile.entries.items():
        if entries == 0:
            continue
        alone = profile.increments_of(procedure, False)
        spared = alone - profile.increments_of(procedure, True)
        sums["alone"] += alone
        sums["entries"] += entries
        sums["all"] += spared
        if procedure not in recursive:
            sums["not recursive"] += spared
        if not profile.leads_to[procedure]:
            sums["leaves"] += spared
    columns = ("alone", "entries", "not recursive", "leaves", "all")
    shares = "  ".join(f"{name} {sums[name] / profile.increments:.3f}" for name in columns)
    print(f"{pathlib.Path(path).stem}: {profile.increments:,} increments; {shares}", flush=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.rsplit("\n\n", 1)[1].strip())
    for path in sys.argv[1:]:
        report(path)


main()
