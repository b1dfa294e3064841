#!/usr/bin/env python3
"""The project's own rules as a test; a rule that is not checked here is only advice.

  line-length   no line above 100 characters (C++, Python, shell)
  file-length   a C++ file above 800 lines is reported, above 1200 fails
  marker        no notes-to-self left in the code
  exit          `exit(` only in src/cli; everything else returns an error
  ptrace        `ptrace(` only in src/tracee
  isa           Zydis is included only in src/isa
  arrow         a room includes only the rooms CMakeLists.txt allows it, and those only point up
  essay         each source file opens with a comment that says what it is for
  room-size     a room above 15 source files is reported
  whitespace    no tabs in C++, no trailing blanks, a newline at the end

Prints `path:line: rule: words` for each breach and ends with "N passed, N failed, 0 skipped", one
test per rule.

usage: tidy.py [--self-test]
"""

import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The order of the house (docs/design.md): arrows only point up this list.
ROOMS = ["base", "elf", "isa", "cfg", "placement", "profile", "claims", "trace", "tracee",
         "translate", "cache", "ledger", "engine", "rewrite", "verify", "sampling", "report", "cli"]
RULES = ["line-length", "file-length", "marker", "exit", "ptrace", "isa", "arrow", "essay",
         "room-size", "whitespace"]
LINE_MAX = 100
FILE_WARN, FILE_MAX = 800, 1200
ROOM_FILES_WARN = 15
MARKER = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
# Code of a line: strings and the comment at its end are not code.
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
EXIT = re.compile(r"(?<![\w.>])(?:std::|::)?(?:quick_)?exit\s*\(")
PTRACE = re.compile(r"(?<![\w.>])(?:::)?ptrace\s*\(")
INCLUDE = re.compile(r'\s*#\s*include\s+([<"])([^>"]+)[>"]')


def tracked_files():
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                         cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [p for p in map(pathlib.PurePosixPath, out.splitlines()) if (ROOT / p).is_file()]


def allowed_rooms():
    """What each room may include, as `tally_room(name tally_a tally_b ...)` says."""
    text = (ROOT / "CMakeLists.txt").read_text()
    allowed = {}
    for name, rest in re.findall(r"^tally_room\((\w+)([^)]*)\)", text, re.M):
        allowed[name] = set(re.findall(r"\btally_(\w+)", rest)) | {name}
    cli = re.search(r"target_link_libraries\(tally PRIVATE([^)]*)\)", text)
    if cli:
        allowed["cli"] = {"cli"}.union(
            *(allowed.get(r, set()) for r in re.findall(r"\btally_(\w+)", cli[1])))
    return allowed


class Checker:
    def __init__(self, allowed):
        self.allowed = allowed
        self.breaches = collections.defaultdict(list)
        self.warnings = []

    def breach(self, rule, path, line, words):
        self.breaches[rule].append(f"{path}:{line}: {rule}: {words}")

    def check_file(self, path, text):
        lines = text.split("\n")
        is_cpp = path.suffix in (".cpp", ".h")
        is_code = is_cpp or path.suffix in (".py", ".sh", ".cmake") or path.name in (
            "CMakeLists.txt", "tally-dev")
        if not is_code:
            return
        in_src = path.parts[0] == "src" and len(path.parts) >= 3
        self.check_text(path, lines, is_cpp)
        if is_cpp and in_src:
            self.check_room_file(path, lines)

    def check_text(self, path, lines, is_cpp):
        generated = path.parts[:2] == ("tests", "programs")  # test inputs may need odd text
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_MAX and not generated and path.name != "CMakeLists.txt":
                self.breach("line-length", path, number, f"{len(line)} characters")
            if MARKER.search(line):
                self.breach("marker", path, number, "finish it or write an issue")
            if not generated and (line != line.rstrip() or (is_cpp and "\t" in line)):
                self.breach("whitespace", path, number, "tab or trailing blank")
        if lines[-1] != "":
            self.breach("whitespace", path, len(lines), "no newline at the end")
        if is_cpp and len(lines) > FILE_MAX:
            self.breach("file-length", path, len(lines), f"{len(lines)} lines; split it")
        elif is_cpp and len(lines) > FILE_WARN:
            self.warnings.append(f"{path}: {len(lines)} lines: wants a reason")

    def check_room_file(self, path, lines):
        room = path.parts[1]
        first = next((line for line in lines if line.strip()), "")
        if not first.startswith(("//", "/*")):
            # A .cpp file whose header bears the essay may start with including it.
            own = f'#include "{room}/{path.stem}.h"'
            header = ROOT / "src" / room / (path.stem + ".h")
            if not (path.suffix == ".cpp" and first == own and header.exists()):
                self.breach("essay", path, 1, "open with a comment: problem, idea, limits")
        if room not in ROOMS:
            self.breach("arrow", path, 1, f"no room '{room}' in the house")
        for number, line in enumerate(lines, 1):
            self.check_include(path, number, line, room)
            code = STRING.sub('""', line).split("//")[0]
            if room != "cli" and EXIT.search(code):
                self.breach("exit", path, number, "only src/cli exits; return an error")
            if room != "tracee" and PTRACE.search(code):
                self.breach("ptrace", path, number, "only src/tracee calls ptrace")

    def check_include(self, path, number, line, room):
        match = INCLUDE.match(line)
        if not match:
            return
        bracket, name = match.groups()
        if name.startswith(("Zydis/", "Zycore/")) and room != "isa":
            self.breach("isa", path, number, "only src/isa knows the instruction set")
        other = name.split("/")[0]
        if bracket != '"' or "/" not in name:
            return
        if other not in ROOMS:
            self.breach("arrow", path, number, f"'{name}' names no room")
        elif other not in self.allowed.get(room, {room}):
            self.breach("arrow", path, number, f"{room} may not use {other} (see CMakeLists.txt)")
        elif room in ROOMS and ROOMS.index(other) > ROOMS.index(room):
            self.breach("arrow", path, number, f"{room} is above {other} in the house")

    def check_rooms(self, paths):
        for room in ROOMS:
            size = sum(1 for p in paths if p.parts[:2] == ("src", room) and p.suffix == ".cpp")
            if size > ROOM_FILES_WARN and room != "cli":
                self.warnings.append(f"src/{room}: {size} .cpp files: wants a reason")


def self_test():
    """Each rule must catch what it is for: the canary of this file."""
    bad = {
        "line-length": "// x\n" + "a" * 101 + "\n",
        "file-length": "// x\n" * 1300,
        "marker": "// x\n// " + "TO" + "DO later\n",
        "exit": "// x\nvoid f() { std::exit(1); }\n",
        "ptrace": "// x\nlong r = ptrace(0, 0, 0, 0);\n",
        "isa": "// x\n#include <Zydis/Zydis.h>\n",
        "arrow": '// x\n#include "engine/run.h"\n',
        "essay": "#pragma once\n",
        "whitespace": "// x \n",
    }
    missed = []
    for rule, text in bad.items():
        checker = Checker(allowed_rooms())
        checker.check_file(pathlib.PurePosixPath("src/placement/canary.h"), text)
        if not checker.breaches[rule]:
            missed.append(rule)
    clean = Checker(allowed_rooms())
    clean.check_file(pathlib.PurePosixPath("src/placement/canary.h"),
                     '// x exit(1)\n#include "base/result.h"\nint y = on_exit(1);  // exit(\n')
    if any(clean.breaches.values()):
        missed.append("clean file: " + str(dict(clean.breaches)))
    return missed


def main():
    missed = self_test()
    if missed:
        print("tidy.py does not catch:", ", ".join(missed))
        print(f"0 passed, {len(missed)} failed, 0 skipped")
        return 1
    if sys.argv[1:] == ["--self-test"]:
        print("1 passed, 0 failed, 0 skipped")
        return 0
    paths = tracked_files()
    checker = Checker(allowed_rooms())
    for path in paths:
        if path.suffix in (".cpp", ".h", ".py", ".sh", ".cmake") or path.suffix == "" or \
                path.name == "CMakeLists.txt":
            try:
                checker.check_file(path, (ROOT / path).read_text())
            except UnicodeDecodeError:
                checker.breach("whitespace", path, 1, "not UTF-8")
    checker.check_rooms(paths)
    for warning in checker.warnings:
        print("note:", warning)
    failed = 0
    for rule in RULES:
        for words in checker.breaches[rule]:
            print(words)
        failed += bool(checker.breaches[rule])
    print(f"{len(RULES) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
