#!/usr/bin/env python3
"""A seccomp filter forbids ptrace: one line that says so, and nothing is left."""
import ctypes
import os
import struct
import subprocess

import refusal
from refusal import finish, path, profile, refused

# if (nr == ptrace) return EPERM; else allow
FILTER = (
    struct.pack("<HBBI", 0x20, 0, 0, 0)
    + struct.pack("<HBBI", 0x15, 0, 1, 101)
    + struct.pack("<HBBI", 0x06, 0, 0, 0x00050001)
    + struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)
)
libc = ctypes.CDLL(None, use_errno=True)
buffer = ctypes.create_string_buffer(FILTER)
program = struct.pack("<HxxxxxxQ", 4, ctypes.addressof(buffer))
sleeper = subprocess.Popen(["sleep", "60"])  # without the filter
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, program, 0, 0) != 0:
    print("no seccomp filter can be installed here:", os.strerror(ctypes.get_errno()))
    sleeper.kill()
    raise SystemExit(77)
refused(profile("a.tally", "/bin/echo", "ran"), "ptrace forbidden", 125, ["ptrace"])
refused(["profile", f"--pid={sleeper.pid}", "-o", path("b.tally")], "attach forbidden", 125,
        ["ptrace"])
if sleeper.poll() is not None:
    refusal.complain("the process that could not be attached to has ended")
sleeper.kill()
sleeper.wait()
doctor = refusal.run(["doctor"], "doctor")
if doctor.status == 0 or b"ptrace" not in doctor.stdout + doctor.stderr:
    refusal.complain(f"doctor does not name ptrace: {doctor.end()}")
finish()
