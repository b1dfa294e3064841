#!/usr/bin/env python3
"""Runs the commands that README.md and docs/*.md show and replaces the output below them.

A shown command is a fenced block whose language is `console`; each line that begins with `$ ` is a
command, what follows is its output.  The blocks of one document run in order, in one folder, with
`tally` on the path and `big.txt` (8 MB of text) present:

    ```console
    $ tally profile -- gzip -9 -c big.txt > /dev/null
    $ tally report gzip.tally
    ...
    ```

A block of any other language is left alone.  A last line `... first N lines` keeps only the first N
lines of the output.

usage: regen_docs.py --tally=PATH [--check] [DOCUMENT...]
--check changes nothing and fails when a command fails.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
CUT = re.compile(r"^\.\.\. first (\d+) lines$", re.M)


def run(command, environment):
    done = subprocess.run(["bash", "-c", command], cwd=WORK, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def split_commands(body):
    """[(command, old output)], a command may go on after a backslash."""
    commands = []
    for line in body.splitlines():
        if line.startswith("$ ") or (commands and commands[-1][0].endswith("\\")
                                     and not commands[-1][1]):
            if line.startswith("$ "):
                commands.append([line[2:], []])
            else:
                commands[-1][0] += "\n" + line
        elif commands:
            commands[-1][1].append(line)
    return commands


def regenerate(body, environment, failures):
    shown = []
    for command, old in split_commands(body):
        status, output = run(command, environment)
        if status != 0:
            failures.append(f"`{command}` ended with status {status}: {output.strip()[-300:]}")
        lines = [line.rstrip() for line in output.splitlines()]
        cut = CUT.search("\n".join(old))
        if cut and len(lines) > int(cut[1]):
            lines = lines[:int(cut[1])] + [cut[0]]
        shown.append("\n".join(["$ " + command, *lines]))
    return "```console\n" + "\n".join(shown) + "\n```"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tally", required=True, type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("documents", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    documents = options.documents or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    environment = dict(os.environ, LC_ALL="C.UTF-8", NO_COLOR="1", TALLY_CACHE="",
                       PATH=f"{options.tally.resolve().parent}:{os.environ['PATH']}")
    failures = []
    for document in documents:
        text = document.read_text()
        if not BLOCK.search(text):
            continue
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir(parents=True)
        subprocess.run([sys.executable, str(ROOT / "bench" / "inputs.py"),
                        f"--text={WORK}/big.txt", "--size-mb=8"], check=True)
        new = BLOCK.sub(lambda m: regenerate(m[1], environment, failures), text)
        if not options.check and not failures:
            document.write_text(new)
        print(f"{document.relative_to(ROOT) if document.is_absolute() else document}: "
              f"{len(BLOCK.findall(text))} blocks")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
