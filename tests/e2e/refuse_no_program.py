#!/usr/bin/env python3
"""What cannot be executed: 127 when it is not there, 126 when it is, as env and timeout do."""
import os

from refusal import WORK, finish, path, profile, refused

refused(profile("a.tally", path("missing")), "missing file", 127, ["missing"])
refused(profile("a.tally", "no-such-program-in-path"), "not in PATH", 127, ["no-such-program"])
refused(profile("a.tally", path("missing/deeper")), "missing folder", 127, ["deeper"])
refused(profile("a.tally", ""), "empty name", 127)

with open(path("plain"), "w", encoding="ascii") as f:
    f.write("no program\n")
refused(profile("a.tally", path("plain")), "not executable", 126, ["plain"])
os.chmod(path("plain"), 0o755)
refused(profile("a.tally", path("plain")), "text without #!", 126, ["plain"])
refused(profile("a.tally", WORK), "a folder", 126)
refused(profile("a.tally", path("plain/below")), "below a file", (126, 127))

with open(path("script"), "w", encoding="ascii") as f:
    f.write("#!/nonexistent/interpreter\n")
os.chmod(path("script"), 0o755)
refused(profile("a.tally", path("script")), "script without its interpreter", 127, ["script"])

with open(path("empty"), "wb"):
    pass
os.chmod(path("empty"), 0o755)
refused(profile("a.tally", path("empty")), "empty file", 126)

refused(["profile", "-o", path("a.tally"), "--"], "no program at all", 2)
refused(["profile", "--placement=nowhere", "--", "/bin/true"], "unknown placement", 2)
refused(["profile", "--no-such-option", "--", "/bin/true"], "unknown option", 2)
if os.path.exists(path("a.tally")):
    print("a profile was written although nothing ran")
    raise SystemExit(1)
finish()
