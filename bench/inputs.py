#!/usr/bin/env python3
"""Makes the inputs of the benchmark programs, the same bytes every time.

Everything is made by a seeded generator; nothing is downloaded.  An input is made again only when
its recipe (this file) or the scale changed.

usage: inputs.py [--work=FOLDER] [--scale=X]         all inputs, below bench/.work
       inputs.py --text=FILE --size-mb=N             one text and nothing else
"""

import argparse
import hashlib
import itertools
import pathlib
import random
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
SYLLABLES = ("an be ca de er fi ga ho in ja ke lo mi no or pa qui re sa te un vo wi ys th st ment "
             "ing ion ly").split()


def vocabulary(generator, size):
    words = set()
    while len(words) < size:
        words.add("".join(generator.choice(SYLLABLES) for _ in range(generator.randint(1, 4))))
    return sorted(words)


def make_text(path, size_bytes, seed=1):
    """Sentences over a vocabulary with Zipf's distribution, now and then a number or a repeat."""
    generator = random.Random(seed)
    words = vocabulary(generator, 6000)
    generator.shuffle(words)
    weights = list(itertools.accumulate(1 / (rank + 2) for rank in range(len(words))))
    written = 0
    earlier = []
    with open(path, "w", encoding="ascii", newline="\n") as out:
        while written < size_bytes:
            count = generator.randint(6, 18)
            sentence = generator.choices(words, cum_weights=weights, k=count)
            if generator.random() < 0.2:
                sentence[generator.randrange(count)] = str(generator.randrange(100000))
            if earlier and generator.random() < 0.15:
                sentence += generator.choice(earlier)
            if len(earlier) < 500:
                earlier.append(sentence[:8])
            else:
                earlier[generator.randrange(500)] = sentence[:8]
            line = " ".join(sentence).capitalize() + (".\n" if generator.random() < 0.8 else ",\n")
            line = line[:max(1, size_bytes - written)]
            out.write(line)
            written += len(line)


def make_mixture(path, size_bytes, seed=2):
    """For the compressors: text, numbers in binary, and noise, in stretches."""
    generator = random.Random(seed)
    text = path.with_suffix(".part")
    make_text(text, size_bytes // 2, seed)
    source = text.read_bytes()
    text.unlink()
    out = bytearray()
    position = 0
    while len(out) < size_bytes:
        kind = generator.random()
        if kind < 0.65:
            out += source[position:position + 40000]
            position = (position + 40000) % max(1, len(source) - 40000)
        elif kind < 0.9:
            value = generator.randrange(1 << 20)
            for _ in range(4000):
                value += generator.randrange(-50, 60)
                out += (value & 0xFFFFFFFF).to_bytes(4, "little")
        else:
            out += generator.getrandbits(8 * 8000).to_bytes(8000, "little")
    path.write_bytes(bytes(out[:size_bytes]))


def make_picture(path, width, height, seed=3):
    """A PPM with smooth gradients, edges and grain."""
    generator = random.Random(seed)
    grain = generator.getrandbits(8 * 65536).to_bytes(65536, "little")
    rows = bytearray()
    for y in range(height):
        row = bytearray(3 * width)
        base = y * 255 // height
        box = (y // 64) & 1
        offset = (y * 7919) % (65536 - 4 * width) if 4 * width < 65536 else 0
        noise = (grain[offset:] + grain)[:width]
        while len(noise) < width:
            noise += grain[:width - len(noise)]
        row[0::3] = bytes(((x * 255 // width) + (n & 15)) & 255 for x, n in enumerate(noise))
        row[1::3] = bytes((base + (n >> 4)) & 255 for n in noise)
        row[2::3] = bytes((200 if ((x // 48) & 1) == box else 40) + (n & 31)
                          for x, n in enumerate(noise))
        rows += row
    path.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + rows)


class CProgram:
    """Random, well-defined C: structs, arrays, loops, switches, calls to earlier functions."""

    HEAD = ("typedef unsigned int u32; typedef unsigned long u64;\n"
            "struct node { u32 key, flags; struct node *next, *child; u64 data[8]; };\n"
            "extern u32 table[1024]; extern struct node *heap[256];\n"
            "extern void report(const char *, u64); extern void *grab(u64);\n")

    def __init__(self, functions, seed=4):
        self.generator = random.Random(seed)
        self.functions = functions
        self.defined = 0

    def expression(self, depth=0):
        g = self.generator
        if depth > 2 or g.random() < 0.25:
            return g.choice(["a", "b", "c", "n->key", "n->flags", "(u32)n->data[a & 7]",
                             "table[b & 1023]", str(g.randrange(1, 4000))])
        if self.defined and g.random() < 0.06:
            return (f"f{g.randrange(self.defined)}({self.expression(depth + 1)}, "
                    f"{self.expression(depth + 1)}, n)")
        operator = g.choice("+ - * ^ & | + - >> << / % == <".split())
        left, right = self.expression(depth + 1), self.expression(depth + 1)
        if operator in (">>", "<<"):
            right = f"({right} & 15)"
        if operator in "/%":
            right = f"({right} | 1)"
        return f"({left} {operator} {right})"

    def statement(self, depth, indent):
        g, pad = self.generator, "  " * indent
        kind = g.random()
        if depth > 2 or kind < 0.4:
            target = g.choice(["a", "b", "c", "n->key", "n->data[c & 7]", "table[a & 1023]"])
            return f"{pad}{target} {g.choice(['=', '+=', '^='])} {self.expression()};\n"
        if kind < 0.6:
            text = f"{pad}if ({self.expression()}) {{\n{self.block(depth, indent)}{pad}}}"
            if g.random() < 0.5:
                text += f" else {{\n{self.block(depth, indent)}{pad}}}"
            return text + "\n"
        if kind < 0.75:
            i = f"i{indent}"
            return (f"{pad}for (u32 {i} = 0; {i} < {g.randrange(4, 64)}; {i}++) {{\n"
                    f"{pad}  a += table[({i} + b) & 1023];\n{self.block(depth, indent)}{pad}}}\n")
        if kind < 0.85:
            cases = "".join(f"{pad}case {value}:\n{self.block(depth, indent)}{pad}  break;\n"
                            for value in range(g.randrange(3, 12)))
            return (f"{pad}switch ({self.expression()} & 15) {{\n"
                    f"{cases}{pad}default: c++;\n{pad}}}\n")
        if kind < 0.95:
            return (f"{pad}while (n->next && (n->key & {g.randrange(1, 255)})) {{\n"
                    f"{self.block(depth, indent)}{pad}  n = n->next;\n{pad}}}\n")
        return f'{pad}if (c == {g.randrange(99)}) report("case {g.randrange(9999)}", a);\n'

    def block(self, depth, indent):
        return "".join(self.statement(depth + 1, indent + 1)
                       for _ in range(self.generator.randrange(1, 4)))

    def text(self):
        parts = [self.HEAD]
        for number in range(self.functions):
            static = "static " if self.generator.random() < 0.3 else ""
            parts.append(f"{static}u32 f{number}(u32 a, u32 b, struct node *n) {{\n"
                         f"  u32 c = a ^ b;\n{self.block(0, 0)}{self.block(0, 0)}"
                         "  return a + b * c;\n}\n")
            self.defined = number + 1
        uses = " + ".join(f"f{i}(a, {i}, n)" for i in range(0, self.functions, 7))
        parts.append(f"u32 all(u32 a, struct node *n) {{ return {uses}; }}\n")
        return "".join(parts)


def make_c_source(path, functions):
    """Preprocessed as cc1 gets it: the generated program behind the headers of libc."""
    headers = "".join(f"#include <{h}.h>\n" for h in (
        "stdio stdlib string math errno signal time unistd sys/stat sys/socket pthread wchar "
        "locale setjmp").split())
    raw = path.with_suffix(".c")
    raw.write_text(headers + CProgram(functions).text())
    subprocess.run(["gcc", "-E", str(raw), "-o", str(path)], check=True)


def make_games(path, moves):
    """GTP commands: the program plays both sides of a game."""
    lines = ["boardsize 13", "clear_board", "level 8"]
    for number in range(moves):
        lines.append("genmove " + ("black", "white")[number % 2])
    path.write_text("\n".join(lines + ["showboard", "quit"]) + "\n")


def build_c(path, source, flags):
    subprocess.run(["gcc", "-O2", str(HERE / "programs" / source), "-o", str(path), *flags],
                   check=True)


def make_all(work, scale):
    def megabytes(amount):
        return int(amount * scale * 1e6)

    side = scale**0.5
    recipes = {
        "text.txt": lambda p: make_text(p, megabytes(TEXT_MB)),
        "mixture.bin": lambda p: make_mixture(p, megabytes(MIXTURE_MB)),
        "mixture_small.bin": lambda p: make_mixture(p, megabytes(MIXTURE_SMALL_MB)),
        "big.i": lambda p: make_c_source(p, max(10, int(C_FUNCTIONS * scale))),
        "picture.ppm": lambda p: make_picture(p, int(PICTURE[0] * side), int(PICTURE[1] * side)),
        "game.gtp": lambda p: make_games(p, max(4, int(GO_MOVES * scale))),
        "joins.sql": lambda p: p.write_text((HERE / "programs" / "joins.sql").read_text().replace(
            "SCALE", str(max(1, int(SQL_SCALE * scale))))),
        "gz_static": lambda p: build_c(p, "gz_static.c", ["-static", "-no-pie", "-lz"]),
        "bz2_nopie": lambda p: build_c(p, "bz2_nopie.c", ["-no-pie", "-l:libbz2.a"]),
        "sql_static_pie": lambda p: build_c(
            p, "sql_static_pie.c", ["-static-pie", "-lsqlite3", "-lm"]),
    }
    work.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes())
    for source in sorted((HERE / "programs").iterdir()):
        digest.update(source.read_bytes())
    stamp_text = f"{digest.hexdigest()} {scale}\n"
    stamp = work / "stamp"
    if stamp.exists() and stamp.read_text() == stamp_text:
        return
    stamp.unlink(missing_ok=True)
    for name, recipe in recipes.items():
        recipe(work / name)
    stamp.write_text(stamp_text)


# Sizes at scale 1, chosen so that each program takes 2-5 s of CPU time on the machine of the
# published figures (Intel Xeon, 2 processors).
TEXT_MB = 30
MIXTURE_MB = 34
MIXTURE_SMALL_MB = 7.5
C_FUNCTIONS = 90
PICTURE = (9800, 7000)
GO_MOVES = 24
SQL_SCALE = 500


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, default=HERE / ".work" / "inputs")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--size-mb", type=float, default=8)
    options = parser.parse_args()
    if options.text:
        make_text(options.text, int(options.size_mb * 1e6))
    else:
        make_all(options.work, options.scale)


if __name__ == "__main__":
    main()
