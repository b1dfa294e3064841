#!/usr/bin/env python3
"""`tally check` on profiles that the real tools make of one program: gcov, Clang's coverage,
callgrind, BOLT, perf, LLVM samples, plain edges of Tally's own counts.  As they are it finds
nothing; each is then made wrong, and found; cut or absurd ones are refused in one line."""
import collections
import csv
import gzip
import json
import os
import pathlib
import shutil
import subprocess

from refusal import WORK, accepted, complain, finish, path, profile, refused, run

SOURCE = str(pathlib.Path(__file__).parent.parent / "programs" / "qsort_callback.c")


def tool(*command, **more):
    done = subprocess.run(command, cwd=WORK, capture_output=True, text=True, **more)
    if done.returncode >= 100:
        raise SystemExit(f"{command}: status {done.returncode}: {done.stderr}")
    return done.stdout


def build(name, compiler, *flags):
    tool(compiler, "-O1", "-w", SOURCE, "-o", name, *flags, check=True)
    return path(name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8") as f:
        f.write(text)
    return path(name)


def check(file, *options):
    return ["check", file, "--format=json", *options]


def clean(file, what, *options):
    """Nothing is found, and something was compared."""
    done = accepted(check(file, *options), what + ", undamaged")
    report = json.loads(done.stdout or b"{}")
    if report.get("findings_total") != 0:
        complain(f"{what}: finds in an undamaged profile: {report.get('findings')}")
    return report


def found(file, kind, what, *options):
    done = run(check(file, *options), what)
    report = json.loads(done.stdout or b"{}")
    kinds = [f["kind"] for f in report.get("findings", [])]
    if done.status != 1 or kind not in kinds:
        complain(f"{what}: status {done.status}, found {kinds}, not {kind}: {done.stderr}")


def refuse(file, what, says, *options):
    refused(["check", file, *options], what, 125, says)


def gcov():
    program = build("with_gcov", "gcc", "--coverage")
    tool(program)
    tool("gcov", "--json-format", "with_gcov-qsort_callback.gcda")
    packed = next(pathlib.Path(WORK).glob("*.gcov.json.gz"))
    if not clean(str(packed), "gcov", "--program=" + program)["claims"]["lines"]:
        complain("gcov: no lines were read")
    data = packed.read_bytes()
    whole = json.loads(gzip.decompress(data))
    (pathlib.Path(WORK) / "cut.gz").write_bytes(data[: len(data) // 2])
    refuse(path("cut.gz"), "gcov cut short", ["cut short"])

    def changed(name, change):
        copy = json.loads(json.dumps(whole))
        functions = copy["files"][0]["functions"]
        change(copy, next(f for f in functions if f["execution_count"] > 0))
        return write(name, json.dumps(copy))

    def set_count(value):
        return lambda copy, function: function.update(execution_count=value)

    found(changed("never.json", set_count(0)), "entries", "gcov: lines without entries")
    found(changed("wrap.json", lambda c, f: f.update(execution_count=f["execution_count"] + 2**32)),
          "overflow-32", "gcov: wrapped")
    found(changed("minus.json", set_count(-1)), "impossible", "gcov: negative")
    refuse(changed("huge.json", set_count(2**64)), "gcov: beyond 64 bits", ["64 bits"])
    refuse(write("half.json", json.dumps(whole)[:300]), "gcov: half JSON", ["cut short"])


def llvm_coverage():
    program = build("with_cov", "clang", "-fprofile-instr-generate", "-fcoverage-mapping")
    tool(program, env=dict(os.environ, LLVM_PROFILE_FILE=path("cov.profraw")))
    tool("llvm-profdata", "merge", "cov.profraw", "-o", "cov.profdata")
    text = tool("llvm-cov", "export", program, "-instr-profile=cov.profdata")
    clean(write("cov.json", text), "coverage", "--program=" + program)
    whole = json.loads(text)
    whole["data"][0]["functions"][0]["count"] += 1
    found(write("cov_total.json", json.dumps(whole)), "total", "coverage: a function's count")
    refuse(write("cov_cut.json", text[: len(text) // 2]), "coverage cut short", ["cut short"])


def callgrind():
    program = build("plain_program", "gcc", "-g")
    tool("valgrind", "-q", "--tool=callgrind", "--dump-instr=yes", "--collect-jumps=yes",
         "--callgrind-out-file=cg.out", program)
    report = clean(path("cg.out"), "callgrind")
    if report["equations"] < 1000 or report["claims"]["edges"] < 100:
        complain(f"callgrind: too little was compared: {report['equations']} equations")
    lines = pathlib.Path(path("cg.out")).read_text().splitlines(keepends=True)
    costs = [i for i, line in enumerate(lines)
             if line.startswith("+") and not lines[i - 1].startswith(("calls", "jump", "jcnd"))]
    at = costs[len(costs) // 2]
    lines[at] = lines[at].rsplit(" ", 1)[0] + " 4000\n"
    found(write("cg.wrong", "".join(lines)), "flow", "callgrind: one count")
    found(path("cg.wrong"), "total", "callgrind: the total")
    refuse(write("cg.cut", "".join(lines[: len(lines) // 2])), "callgrind cut", ["cut short"])
    lines[at] = lines[at].rsplit(" ", 1)[0] + " -4\n"
    refuse(write("cg.minus", "".join(lines)), "callgrind: negative", ["negative"])
    tool("valgrind", "-q", "--tool=callgrind", "--callgrind-out-file=cg.lines", program)
    refuse(path("cg.lines"), "callgrind without addresses", ["--dump-instr=yes"])


def bolt():
    program = build("to_bolt", "gcc", "-Wl,--emit-relocs")
    libraries = sorted(pathlib.Path("/usr/lib").glob("llvm-*/lib/libbolt_rt_instr.a"))
    bolts = [shutil.which(f"llvm-bolt-{n}") for n in range(22, 13, -1)]
    bolts = [b for b in bolts if b]
    if not bolts or not libraries:
        complain("no llvm-bolt: install bolt-16")
        return
    library = "--runtime-instrumentation-lib=" + str(libraries[-1].relative_to("/usr/lib"))
    tool(bolts[0], program, "-o", path("bolted"), "--instrument", library,
         "--instrumentation-file=" + path("x.fdata"))
    tool(path("bolted"))
    options = ["--program=" + program]
    clean(path("x.fdata"), "fdata", *options)
    refuse(path("x.fdata"), "fdata of another program", ["another build"],
           "--program=/usr/bin/gzip")
    refused(["check", path("x.fdata")], "fdata without a program", 2, ["--program"])
    lines = pathlib.Path(path("x.fdata")).read_text().splitlines(keepends=True)
    # The most taken edge that leads on; of a loop of one block nothing could be told.
    words = [line.split() for line in lines]
    edge = max((i for i, w in enumerate(words)
                if w[1] == w[4] == "main" and int(w[2], 16) < int(w[5], 16)),
               key=lambda i: int(words[i][-1]))
    less = lines[:edge] + lines[edge + 1:]
    found(write("missed.fdata", "".join(less)), "missing-edge", "fdata: a missed edge", *options)
    refuse(write("cut.fdata", "".join(lines)[:-3]), "fdata cut", ["cut short"], *options)


def plain():
    """The edges within the program, from Tally's own counts of them."""
    program = path("plain_program")
    accepted(profile("own.tally", program), "profile", quiet=True)
    clean(path("own.tally"), "Tally's own")
    rows = run(["dump", "edges", path("own.tally")], "dump").stdout.decode().splitlines()
    edges = collections.Counter()
    for row in csv.DictReader(rows):
        if row["module"] == row["to_module"] == program:
            edges[row["from_block"], row["to_block"]] += int(row["count"])
    text = "".join(f"{a} {b} {n}\n" for (a, b), n in sorted(edges.items()))
    option = "--program=" + program
    clean(write("plain", "# from to count\n" + text), "plain", option)
    # Twice as often along the edge that is taken most: what leaves is more than what arrives.
    # (Of a loop of one block both would be, and nothing could be told.)
    (a, b), most = next(item for item in edges.most_common() if item[0][0] != item[0][1])
    wrong = text.replace(f"{a} {b} {most}\n", f"{a} {b} {2 * most}\n")
    found(write("plain_wrong", wrong), "flow", "plain: one count", option)
    found(write("plain_data", text + f"{a} 0x0 5\n"), "not-code", "plain: data", option)
    refuse(write("plain_far", "0x7f0000000000 0x7f0000000010 3\n"), "plain: another program",
           ["another program"], option)


def perf():
    """Virtual machines and containers may forbid perf: then the stored sample alone is read (in
    the unit tests)."""
    done = subprocess.run(["perf", "record", "-q", "-o", path("p.data"), "-e", "cpu-clock",
                           "-F", "5000", "gzip", "-9", "-c", "/usr/bin/perl"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        print("perf is not permitted here: only the stored sample is read")
        return
    text = tool("perf", "script", "-i", path("p.data"), "--show-mmap-events")
    report = clean(write("p.txt", text), "perf script")
    if report["claims"]["instructions"] == 0:
        complain("perf script: no samples were read")


def llvm_samples():
    text = "main:30:1\n 1: 10\n 2: 5 sort:4\n 3: less:15\n  1: 15\nless:20:3\n 1: 20\n"
    clean(write("samples", text), "LLVM samples")
    again = tool("llvm-profdata", "merge", "--sample", "--text", path("samples"), "-o", "-")
    clean(write("samples.merged", again), "LLVM samples, written by LLVM")
    found(write("samples.more", text.replace("1: 20", "1: 21")), "total", "LLVM samples: a sum")
    refuse(write("samples.cut", text[:-4]), "LLVM samples cut", ["cut short"])


gcov()
llvm_coverage()
callgrind()
bolt()
plain()
if shutil.which("perf"):
    perf()
llvm_samples()
refuse(write("empty", ""), "an empty profile", ["empty"])
refuse(write("words", "hello, this is a text\n"), "no profile", ["not a profile"])
refuse(WORK, "a folder", ["regular"])
refused(["check", path("empty"), "--profile-format=nonsense"], "unknown form", 2)
finish()
