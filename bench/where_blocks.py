"""Which blocks of a program are slower under Tally than natively: samples compared block by block.

For where.py.  The program runs natively and as a later run under Tally, both without address space
randomization, sampled by the clock.  A sample in the code cache belongs to the original block that
its piece was made from (a stub that counts an indirect branch: to the block that it leads to, or,
if the program's index leads to the stub, to the block that jumps); a native sample to the last
block that begins at or before it.  What is printed are the blocks with the most samples more, and,
if wanted, the instructions of their pieces as they are in the code cache during the run.
"""

import bisect
import collections
import os
import pathlib
import subprocess
import tempfile
import threading
import time

# A native sample further than this behind the beginning of a block is in code never translated.
FAR_BYTES = 4096
LANDING, PAIR = "landing", "pair"


class CodeDump(threading.Thread):
    """Copies the code cache of a process under Tally after some seconds of its run."""

    def __init__(self, after_s):
        super().__init__(daemon=True)
        self.after_s = after_s
        self.parts = []  # (address, bytes)
        self.start()

    @staticmethod
    def areas():
        """Executable mappings of a region, and a descriptor of the region's file."""
        mappings, path = [], None
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                maps = (process / "maps").read_text()
                if "memfd:tally" not in maps:
                    continue
                lines = [line.split() for line in maps.splitlines() if "memfd:tally" in line]
                mappings += [line for line in lines if line[1] == "r-xs"]
                for fd in (process / "fd").iterdir():
                    if "memfd:tally" in os.readlink(fd):
                        path = fd
            except OSError:
                continue  # it has ended meanwhile
        return mappings, path

    def run(self):
        time.sleep(self.after_s)
        mappings, path = self.areas()
        if path is None:
            return
        with open(path, "rb", buffering=0) as file:
            for line in mappings:
                begin, end = (int(part, 16) for part in line[0].split("-"))
                offset = int(line[2], 16)
                at, limit = offset, offset + end - begin
                while at < limit:
                    try:
                        data = os.lseek(file.fileno(), at, os.SEEK_DATA)
                    except OSError:
                        break  # nothing but a hole
                    if data >= limit:
                        break
                    at = min(os.lseek(file.fileno(), data, os.SEEK_HOLE), limit)
                    part = os.pread(file.fileno(), at - data, data)
                    self.parts.append((begin + data - offset, part))

    def bytes_at(self, begin, end):
        for address, data in self.parts:
            if address <= begin and end <= address + len(data):
                return data[begin - address:end - address]
        return b""


def disassemble(code, address):
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(code)
        file.flush()
        text = subprocess.run(["objdump", "-D", "-b", "binary", "-m", "i386:x86-64", "-M", "intel",
                               f"--adjust-vma={address:#x}", file.name], capture_output=True,
                              text=True, check=True).stdout
    return [line for line in text.splitlines() if line.startswith("    ") and ":\t" in line]


class Blocks:
    """Samples by the original address of their block: native ones, and by kinds of pieces."""

    def __init__(self, pieces):
        self.pieces = sorted(pieces)
        self.begins = [piece[0] for piece in self.pieces]
        self.originals = sorted({p[3] for p in self.pieces if p[2] == "body" and p[3] != 0})
        self.native = collections.Counter()
        self.native_elsewhere = 0
        self.by_kind = collections.defaultdict(collections.Counter)
        self.by_piece = collections.defaultdict(collections.Counter)  # piece -> offset -> samples
        self.elsewhere = 0

    def add_native(self, address):
        at = bisect.bisect_right(self.originals, address) - 1
        if at < 0 or address - self.originals[at] > FAR_BYTES:
            self.native_elsewhere += 1
        else:
            self.native[self.originals[at]] += 1

    def add(self, address):
        at = bisect.bisect_right(self.begins, address) - 1
        if at < 0 or address >= self.pieces[at][1]:
            self.elsewhere += 1
            return
        begin, _, kind, original = self.pieces[at]
        column = kind if kind in (LANDING, PAIR) else "body" if kind == "body" else "end"
        self.by_kind[original][column] += 1
        self.by_piece[at][address - begin] += 1

    def more(self, original):
        return sum(self.by_kind[original].values()) - self.native[original]

    def table(self, top):
        keys = set(self.by_kind) | set(self.native)
        return sorted(keys, key=self.more, reverse=True)[:top]

    def listing(self, original, dump):
        """The sampled pieces of a block, with the samples in front of each instruction."""
        for at, (begin, end, kind, of) in enumerate(self.pieces):
            if of != original or at not in self.by_piece:
                continue
            samples = self.by_piece[at]
            yield f"  {kind} at {begin:#x}, {begin % 64} bytes into a line"
            for line in disassemble(dump.bytes_at(begin, end), begin):
                address = int(line.split(":")[0], 16)
                yield f"  {samples.get(address - begin, 0) or '':>6} {line.strip()}"


def read_pieces(code_map):
    for line in code_map.read_text().splitlines():
        begin, end, kind, original = line.split()
        yield int(begin, 16), int(end, 16), kind, int(original, 16)


def report(blocks, native_samples, top, dump):
    print(f"{native_samples} samples natively, {blocks.native_elsewhere} of them in no block that "
          f"was translated; {blocks.elsewhere} samples under Tally in no piece of the code cache")
    columns = ("body", "end", LANDING, PAIR)
    print(f"{'block':>16} {'native':>8} {'more':>8} " + " ".join(f"{c:>8}" for c in columns))
    if dump and not dump.parts:
        print("no code: the program had ended before its code cache could be copied")
    for original in blocks.table(top):
        counts = blocks.by_kind[original]
        print(f"{original:16x} {blocks.native[original]:8} {blocks.more(original):8} " +
              " ".join(f"{counts[c]:8}" for c in columns))
        if dump and dump.parts:
            print("\n".join(blocks.listing(original, dump)))
