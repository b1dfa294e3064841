#!/usr/bin/env python3
"""A 32-bit process is not attached to, by name, and goes on.

The program is made by hand, so that no 32-bit compiler is needed: it sleeps in `pause`, again and
again.
"""
import os
import struct
import subprocess
import time

from refusal import complain, finish, path, refused

CODE = bytes([0xB8, 29, 0, 0, 0, 0xCD, 0x80, 0xEB, 0xF7])  # mov eax, 29; int 0x80; jmp back
BASE = 0x08048000
HEADERS_BYTES = 84

header = b"\x7fELF\x01\x01\x01" + bytes(9)
header += struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, BASE + HEADERS_BYTES, 52, 0, 0, 52, 32, 1, 0, 0, 0)
size = HEADERS_BYTES + len(CODE)
header += struct.pack("<IIIIIIII", 1, 0, BASE, BASE, size, size, 5, 0x1000)
with open(path("pauses"), "wb") as f:
    f.write(header + CODE)
os.chmod(path("pauses"), 0o755)
try:
    program = subprocess.Popen([path("pauses")])
except OSError as error:
    print("this kernel runs no 32-bit programs:", error)
    raise SystemExit(77) from error
time.sleep(0.3)
refused(["profile", f"--pid={program.pid}", "-o", path("a.tally")], "attach", 125, ["32-bit"])
if program.poll() is not None:
    complain(f"the process has ended: {program.returncode}")
with open(f"/proc/{program.pid}/status", encoding="utf-8") as f:
    if "TracerPid:\t0\n" not in f.read():
        complain("the process is still traced")
program.kill()
program.wait()
refused(["profile", "-o", path("a.tally"), "--", path("pauses")], "launch", 126, ["32-bit"])
finish()
