#!/usr/bin/env python3
"""clang-tidy over src/, two files at a time, remembering which ones were clean.

A file's verdict depends on its text, on all headers of src/ and on .clang-tidy; that hash names a
stamp below build/tidy, so a second run looks only at what changed.

usage: clang_tidy.py --build=FOLDER_WITH_compile_commands.json [--all] [FILE...]
Without --all and without files: those changed since the branch left origin/main, or not committed.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STAMPS = ROOT / "build" / "tidy"


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split() if done.returncode == 0 else []


def changed_files():
    base = git("merge-base", "HEAD", "origin/main") or git("rev-parse", "HEAD~1")
    names = set(git("diff", "--name-only", *(base[:1] or ["HEAD"])))
    names |= set(git("ls-files", "--others", "--exclude-standard"))
    return names


def common_hash():
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for header in sorted(ROOT.glob("src/*/*.h")):
        digest.update(header.read_bytes())
    return digest


def write_database(database):
    """The build's commands as clang 14 understands them: it calls C++23 by its working name."""
    STAMPS.mkdir(parents=True, exist_ok=True)
    text = database.read_text()
    (STAMPS / "compile_commands.json").write_text(text.replace("-std=c++23", "-std=c++2b"))
    return json.loads(text)


def check(path, common):
    key = common.copy()
    key.update(str(path).encode() + path.read_bytes())
    stamp = STAMPS / key.hexdigest()
    if stamp.exists():
        return 0, "", 0.0
    started = time.monotonic()
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", str(STAMPS), "--warnings-as-errors=*", str(path)],
        cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    output = done.stdout
    if done.returncode == 0:
        stamp.touch()
    elif not output.strip():
        output = done.stderr  # clang-tidy itself failed
    return done.returncode, output, time.monotonic() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    database = options.build / "compile_commands.json"
    if not database.exists():
        print(f"no {database}: configure with `cmake --preset dev` first")
        return 1
    known = {pathlib.Path(entry["file"]).resolve() for entry in write_database(database)}
    sources = sorted(f for f in known if f.is_relative_to(ROOT / "src") and f.exists())
    if options.files:
        wanted = {pathlib.Path(f).resolve() for f in options.files}
        sources = [f for f in sources if f in wanted]
    elif not options.all:
        names = changed_files()
        sources = [f for f in sources if str(f.relative_to(ROOT)) in names]
    common = common_hash()
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        futures = {pool.submit(check, f, common): f for f in sources}
        for future in concurrent.futures.as_completed(futures):
            status, output, seconds = future.result()
            passed += status == 0
            failed += status != 0
            name = futures[future].relative_to(ROOT)
            print(f"{'ok' if status == 0 else 'FAILED':8}{str(name):45}{seconds:6.1f} s",
                  flush=True)
            if status:
                print(output, flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
