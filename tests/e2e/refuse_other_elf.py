#!/usr/bin/env python3
"""Programs for other machines: 32-bit x86, x32, ARM, big-endian: one line, nothing run."""
import os
import struct
import subprocess

from refusal import WORK, finish, path, profile, refused

ASM = ".globl _start\n_start: mov $1,%eax\n xor %ebx,%ebx\n int $0x80\n"
with open(path("small.s"), "w", encoding="ascii") as f:
    f.write(ASM)
subprocess.run(["as", "--32", "small.s", "-o", "small.o"], check=True, cwd=WORK)
subprocess.run(["ld", "-m", "elf_i386", "small.o", "-o", "small32"], check=True, cwd=WORK)
refused(profile("a.tally", path("small32")), "32-bit program", (125, 126), ["32-bit"])

with open("/bin/true", "rb") as f:
    good = f.read()


def changed(name, offset, value):
    data = bytearray(good)
    data[offset : offset + len(value)] = value
    with open(path(name), "wb") as f:
        f.write(data)
    os.chmod(path(name), 0o755)
    return path(name)


refused(profile("a.tally", changed("arm", 18, struct.pack("<H", 183))), "ARM program", (125, 126))
refused(profile("a.tally", changed("big", 5, b"\x02")), "big-endian program", (125, 126, 127))
refused(profile("a.tally", changed("object", 16, struct.pack("<H", 1))), "object file", (125, 126))
refused(profile("a.tally", changed("core", 16, struct.pack("<H", 4))), "core file", (125, 126))
missing = good.replace(b"/lib64/ld-linux-x86-64.so.2", b"/lib64/ld-linux-x86-64.so.9")
refused(profile("a.tally", changed("noldso", 0, missing)), "ld.so is missing", 127)
finish()
