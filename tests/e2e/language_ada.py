#!/usr/bin/env python3
"""Ada: exceptions, also those that a signal raises, and tasks."""
from languages import build, check, finish, need, path, source

need("gnatmake")
build("gnatmake", "-q", "-O0", "-o", path("raises"), source("raises.adb"))
check("ada", [path("raises")], fib=(path("raises"), "raises__fib"))
finish()
