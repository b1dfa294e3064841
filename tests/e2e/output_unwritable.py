#!/usr/bin/env python3
"""The profile cannot be written: one line, status 125, the target unharmed, no file that looks
complete.  Folders that are missing, read-only, full; an output that is a folder or a device."""
import os
import shutil
import subprocess

import processes
import refusal
from refusal import TALLY, WORK, complain, finish, path, profile, refused

ECHO = ["/bin/echo", "target ran"]


def unwritable(output, what):
    done = refused(["profile", "-o", output, "--", *ECHO], what, 125)
    if done.stdout not in (b"", b"target ran\n"):
        complain(f"{what}: stdout is {done.stdout!r}")


unwritable(path("missing/out.tally"), "missing folder")
unwritable("/proc/out.tally", "read-only file system")
os.mkdir(path("folder"))
unwritable(path("folder"), "a folder in the way")
unwritable("/dev/full", "a device")
if os.listdir(path("folder")):
    complain("something was left in the folder")

# A profile that is there already is not lost when the new one cannot be made.
refusal.accepted(profile("old.tally", *ECHO), "first profile")
before = open(path("old.tally"), "rb").read()
refused(profile("old.tally", path("missing-program")), "no program, old profile", 127)
if open(path("old.tally"), "rb").read() != before:
    complain("the old profile was damaged by a run that never began")

# A full disk: a tmpfs of 64 KB in a mount namespace of its own.
os.mkdir(path("small"))
inner = (
    f"mount -t tmpfs -o size=64k tmpfs {path('small')} && cd {path('small')} && "
    f"{TALLY} profile -o out.tally -- /bin/echo target ran; s=$?; ls -A > {path('listing')}; "
    f"{TALLY} report out.tally > {path('report')} 2>&1; "
    f"echo report $? >> {path('listing')}; exit $s"
)
unshare = shutil.which("unshare")
works = unshare and subprocess.run(
    [unshare, "-Urm", "sh", "-c", f"mount -t tmpfs tmpfs {path('small')}"], capture_output=True
).returncode == 0
if works:
    done = processes.run([unshare, "-Urm", "sh", "-c", inner], WORK, "full", 60)
    text = done.stderr.decode(errors="replace")
    listing = open(path("listing"), encoding="utf-8").read().split("\n")
    if done.status != 125 or len(text.splitlines()) != 1:
        complain(f"full disk: {done.end()}: {text.strip()}")
    # Found out before the target ran, or after.
    if done.stdout not in (b"", b"target ran\n"):
        complain(f"full disk: the target's output is {done.stdout!r}")
    if "report 0" in listing:
        complain("full disk: a file was left that looks complete")
else:
    print("no mount namespace here: the full disk was not tried")
finish()
