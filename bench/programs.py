"""The programs of the benchmark and how they are run.  One table for bench and for tests.

Hash seeds are fixed and nothing shows the time, so two runs of a program do the same work and print
the same bytes.  Inputs come from inputs.py; `scale` shrinks the work of those that take a number.
"""

import dataclasses
import pathlib
import shutil

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "programs"


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    argv: list
    environment: dict = dataclasses.field(default_factory=dict)
    stdin: pathlib.Path = None
    output: pathlib.Path = None  # a file it writes besides stdout, compared as well
    is_c: bool = True            # written in C (the claim about increments is about these)


def find(name, *elsewhere):
    """The program as Debian ships it: not what another PATH entry puts before it."""
    for folder in ("/usr/bin", "/bin", "/usr/games", *elsewhere):
        path = pathlib.Path(folder) / name
        if path.exists():
            return str(path)
    return shutil.which(name) or name


def programs(inputs, work, scale=1.0):
    text, mixture = str(inputs / "text.txt"), str(inputs / "mixture.bin")
    small = str(inputs / "mixture_small.bin")
    picture = str(inputs / "picture.ppm")
    script = {path.name: str(path) for path in SCRIPTS.iterdir()}
    side = scale**0.5

    def rounds(number):
        return str(max(1, int(number * scale)))

    def steps(number):  # work that grows tenfold with each step
        return str(number - (1 if scale < 0.5 else 0) - (1 if scale < 0.05 else 0))

    return [
        Program("gzip", [find("gzip"), "-9", "-n", "-c", text]),
        Program("bzip2", [find("bzip2"), "-9", "-c", mixture]),
        Program("xz", [find("xz"), "-5", "-T1", "-c", small]),
        Program("zstd", [find("zstd"), "-18", "--single-thread", "-q", "-c", small]),
        Program("perl", [find("perl"), script["hashes.pl"], "1", text],
                {"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}),
        Program("lua fannkuch", [find("lua5.4"), script["fannkuch.lua"], steps(10), "2"]),
        Program("lua trees", [find("lua5.4"), script["trees.lua"], steps(17)]),
        Program("python3", [find("python3"), "-B", "-E", "-s", script["mixed.py"], rounds(740)],
                {"PYTHONHASHSEED": "0"}),
        Program("sqlite3", [find("sqlite3"), ":memory:"], stdin=inputs / "joins.sql"),
        Program("cc1", [find("cc1", "/usr/lib/gcc/x86_64-linux-gnu/12"), "-O2", "-quiet",
                        "-fpreprocessed", "-frandom-seed=1", str(inputs / "big.i"), "-o",
                        str(work / "big.s")], output=work / "big.s", is_c=False),
        Program("gnugo", [find("gnugo"), "--mode", "gtp", "--seed", "1", "--gtp-input",
                          str(inputs / "game.gtp")]),
        Program("cjpeg", [find("cjpeg"), "-quality", "92", "-progressive", "-arithmetic",
                          picture]),
        Program("compress", [find("compress"), "-c", picture]),
        Program("gawk", [find("gawk"), "-f", script["words.awk"], text, text],
                {"LC_ALL": "C"}),
        Program("povray", [find("povray"), f"+I{script['scene.pov']}", "-D", "+WT1", "-GA", "-V",
                           "+FP", f"+W{int(1240 * side)}", f"+H{int(930 * side)}", "+A0.3", "-C",
                           f"+O{work / 'scene.ppm'}"],
                output=work / "scene.ppm", is_c=False),
        Program("gz static", [str(inputs / "gz_static"), text]),
        Program("bz2 no-pie", [str(inputs / "bz2_nopie"), mixture]),
        Program("sql static-pie", [str(inputs / "sql_static_pie"), str(inputs / "joins.sql")]),
    ]
