#!/usr/bin/env python3
"""Where the time of a program under Tally goes: samples of perf against the code cache.

    bench/where.py --tally build/release/tally -- PROGRAM ARGS...

Needs perf (no hardware counters: it samples by the clock).  Prints the share of each kind of code:
bodies of blocks (copied instructions and inline counters), landings behind calls, translated
returns, calls, conditional and indirect branches, stubs, and what is not in the cache at all.
"""

import argparse
import bisect
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ADDRESS = re.compile("[0-9a-f]{6,16}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tally", required=True)
    parser.add_argument("--top", type=int, default=0, help="print the N hottest pieces as well")
    parser.add_argument("--placement", default="edges")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        code_map, data = folder / "map", folder / "perf.data"
        environment = dict(os.environ, TALLY_CODE_MAP=str(code_map))
        subprocess.run(["perf", "record", "-q", "-e", "cpu-clock", "-F", "2000", "-o", data,
                        options.tally, "profile", "-o", folder / "out.tally",
                        f"--placement={options.placement}", "--", *options.command],
                       env=environment, stdout=subprocess.DEVNULL, check=True)
        script = subprocess.run(["perf", "script", "-i", data, "-F", "comm,ip,dso"],
                                capture_output=True, text=True, check=True).stdout
        pieces = sorted((int(b, 16), int(e, 16), kind, original) for b, e, kind, original in
                        (line.split() for line in code_map.read_text().splitlines()))
    begins = [piece[0] for piece in pieces]
    kinds, hot = collections.Counter(), collections.Counter()
    for line in script.splitlines():
        fields = line.split()
        address = next((f for f in fields[1:] if ADDRESS.fullmatch(f)), None)
        if address is None:
            continue
        ip = int(address, 16)
        if "memfd:tally" not in line:
            kinds["monitor" if fields[0] == "tally" else "kernel or other"] += 1
            continue
        at = bisect.bisect_right(begins, ip) - 1
        if at >= 0 and pieces[at][0] <= ip < pieces[at][1]:
            kinds[pieces[at][2]] += 1
            hot[pieces[at]] += 1
        else:
            kinds["gateway"] += 1
    total = sum(kinds.values()) or 1
    for kind, count in kinds.most_common():
        print(f"{kind:20} {count:8} {100 * count / total:5.1f}%")
    for piece, count in hot.most_common(options.top):
        print(f"{count:8} {piece[0]:#x} {piece[2]} of {piece[3]}")


if __name__ == "__main__":
    sys.exit(main())
