#!/usr/bin/env python3
"""Go: goroutines, stacks that grow, preemption by signals, panics; no call frame information."""
from languages import build, check, finish, need, path, source

need("go")
build("go", "build", "-o", path("tasks"), source("tasks.go"))
check("go", [path("tasks")], fib=(path("tasks"), "main.fib"))
check("go_panic", [path("tasks"), "panic"], fib=(path("tasks"), "main.fib"))
finish()
