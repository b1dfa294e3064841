#!/usr/bin/env python3
"""QEMU's emulator of one program: generated code that long jumps leave."""
from languages import check, finish, need

need("qemu-x86_64")
check("qemu", ["qemu-x86_64", "/bin/echo", "hello"])
finish()
