#!/usr/bin/env python3
"""Python with numpy: extension modules, and a library with threads of its own."""
import subprocess
import sys

from languages import check, finish, source

if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True).returncode:
    print("skipped: no numpy")
    sys.exit(77)
check("python", ["/usr/bin/python3", source("extension.py")])
finish()
