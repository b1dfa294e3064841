#!/usr/bin/env python3
"""Large real programs under Tally: same output and end as natively, balanced, nothing unnamed.

Each program of real_programs.py runs natively and under `tally profile`, in the same folder made
anew.  What it writes is compared (times that it shows left out), the profile must be balanced and
name no issue, but those that docs/exactness.md foretells for it, which are shown.  Programs that
are not installed are named as not run.

usage: real.py --tally=PATH [--only=NAME,...] [--out=bench/real.md] [--work=FOLDER] [--list]
               [--keep]

Exit status 77: none of the programs is installed.
"""
import argparse
import hashlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time

import real_programs

HERE = pathlib.Path(__file__).resolve().parent


class Ended:
    """One end of a program: how, after how long, and what it had written."""

    def __init__(self, status, wall_s, cpu_s, written, said):
        self.status, self.wall_s, self.cpu_s = status, wall_s, cpu_s
        self.written = written  # name of stream or file -> text or digest
        self.said = said        # Tally's own lines


def clean(program, data):
    for pattern in program.volatile:
        data = re.sub(pattern, b"", data, flags=re.M)
    return data


def short(data):
    return data.decode(errors="replace") if len(data) < 2000 else (
        f"{len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


class Bench:
    def __init__(self, options):
        self.options = options
        self.tally = os.path.abspath(options.tally)
        self.work = pathlib.Path(options.work).resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        os.chmod(self.work, 0o755)

    def folder_of(self, program):
        folder = self.work / program.name.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if program.prepare:
            program.prepare(folder)
        if program.as_user:
            for path in [folder, *folder.rglob("*")]:
                shutil.chown(path, real_programs.ORDINARY_USER)
        return folder

    def run(self, program, profile=None):
        folder = self.folder_of(program)
        argv = [str(a).replace("FOLDER", str(folder)) for a in program.argv]
        if profile:
            profile.unlink(missing_ok=True)
            argv = [self.tally, "profile", "-o", str(profile), "--", *argv]
        if program.as_user:
            user = pwd.getpwnam(real_programs.ORDINARY_USER)
            argv = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}",
                    "--clear-groups", *argv]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8",
                       **{name: value.replace("FOLDER", str(folder))
                          for name, value in program.environment.items()}}
        out, err = self.work / "stdout", self.work / "stderr"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            begun = time.monotonic()
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stdout,
                                       stderr=stderr, cwd=folder, env=environment,
                                       start_new_session=True)
            status, cpu_s = self.wait(process, begun + program.timeout_s * (20 if profile else 1))
        wall_s = time.monotonic() - begun
        lines = err.read_bytes().splitlines(keepends=True)
        said = [l.decode().strip() for l in lines if l.startswith(b"tally:")]
        written = {"stdout": short(clean(program, out.read_bytes()))}
        if program.compare_stderr:
            theirs = b"".join(l for l in lines if not l.startswith(b"tally:"))
            written["stderr"] = short(clean(program, theirs))
        for name in program.outputs:
            path = folder / name
            written[name] = short(clean(program, path.read_bytes())) if path.exists() else "missing"
        return Ended(status, wall_s, cpu_s, written, said)

    @staticmethod
    def wait(process, until):
        """Ends the whole session of a program that takes too long."""
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode, usage.ru_utime + usage.ru_stime
            if time.monotonic() > until:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return "took too long", 0.0
            time.sleep(0.01)

    def facts(self, program, profile):
        """Size of the profile, the issues it names, and what is wrong with it."""
        done = subprocess.run([self.tally, "report", str(profile), "--format=json"],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return 0, 0, [], [f"no report: {done.stderr.strip()[-300:]}"]
        report = json.loads(done.stdout)
        wrong, issues = [], []
        for issue in report["issues"]:
            words = f"{issue['scope']}: {issue['message']}"
            foretold = any(re.search(p, words) for p in program.issues)
            (issues if foretold else wrong).append(words)
        unbalanced = [f"run {r['number']} is not balanced" for r in report["runs"]
                      if not r["balanced"]]
        if not issues:  # the reason is foretold
            wrong += unbalanced
        total = sum(t["instructions"] for t in report["threads"])
        if total != int(report["totals"]["instructions"]) and not issues:
            wrong.append(f"threads {total} of {report['totals']['instructions']}")
        return len(report["runs"]), int(report["totals"]["instructions"]), issues, wrong

    def counted(self, program, profile):
        """What the kernel's randomization has made collide (docs/exactness.md) is run again, as
        Tally says."""
        for _ in range(3):
            ours = self.run(program, profile)
            if not any("run it again" in line for line in ours.said):
                break
            print(f"  {program.name}: {ours.said[0]}", file=sys.stderr, flush=True)
        return ours

    def one(self, program):
        """A line of the table, and what is wrong."""
        native = self.run(program)
        profile = self.work / (program.name.replace(" ", "-") + ".tally")
        if program.as_user:
            profile = pathlib.Path(f"/tmp/real-{os.getpid()}.tally")
        ours = self.counted(program, profile)
        wrong = []
        if not program.other_end and ours.status != native.status:
            wrong.append(f"ended with {ours.status}, natively with {native.status}; "
                         f"{'; '.join(ours.said[:5])}")
        for name, text in native.written.items():
            if not program.other_end and ours.written[name] != text:
                wrong.append(f"{name} differs:\n--- natively\n{text}\n--- under Tally\n"
                             f"{ours.written[name]}\n---")
        runs, instructions, issues, more = self.facts(program, profile)
        wrong += more
        if not self.options.keep:
            profile.unlink(missing_ok=True)
        verdict = "exact" if not wrong and not issues else "see below"
        line = (f"| {program.name} | {runs} | {instructions:,} | {native.wall_s:.2f} | "
                f"{ours.wall_s:.2f} | {ours.wall_s / native.wall_s:.1f} | {verdict} |")
        return line, [f"{program.name}: foretold: {i}" for i in issues], wrong

    def go(self):
        chosen = self.options.only.split(",") if self.options.only else None
        lines, notes, problems, missing = [], [], [], []
        for program in real_programs.programs(chosen):
            if program.missing:
                missing.append(f"{program.name}: not run: {program.missing} is not installed")
                continue
            line, foretold, wrong = self.one(program)
            lines.append(line)
            notes += foretold
            problems += [f"{program.name}: {w}" for w in wrong]
            print(line, *foretold, *wrong, sep="\n", flush=True)
        return lines, notes, problems, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", default=str(HERE.parent / "build" / "release" / "tally"))
    parser.add_argument("--only", default="")
    parser.add_argument("--out")
    parser.add_argument("--work", default=str(HERE / ".work" / "real"))
    parser.add_argument("--keep", action="store_true", help="keep the profiles")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for program in real_programs.programs():
            print(program.name, *map(str, program.argv))
        return 0
    lines, notes, problems, missing = Bench(options).go()
    text = "\n".join([
        "# Real programs", "",
        "Made by `bench/real.py`: where it says exact, output and end are as natively, all runs",
        "are balanced and nothing is named; wall-clock seconds, one run each.", "",
        "| program | runs | instructions | native s | under Tally s | times | counts |",
        "|---|---:|---:|---:|---:|---:|---|", *lines, "",
        *[f"- {n}" for n in [*notes, *problems, *missing]], ""])
    print(text)
    if options.out:
        pathlib.Path(options.out).write_text(text)
    if not lines:
        return 77
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
