#!/usr/bin/env python3
"""Java: an interpreter that is generated, compilers that patch their code while it runs."""
from languages import build, check, finish, need, path, source

need("java", "javac")
build("javac", "-d", path("."), source("Tasks.java"))
check("java", ["java", "-Xmx256m", "-cp", path("."), "Tasks"])
check("java_interpreted", ["java", "-Xint", "-Xmx256m", "-cp", path("."), "Tasks"])
finish()
