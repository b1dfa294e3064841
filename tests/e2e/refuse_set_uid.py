#!/usr/bin/env python3
"""Set-user-id and set-group-id programs lose their rights under ptrace: refused by name."""
import os
import shutil

from refusal import complain, finish, path, profile, refused

for name, mode in (("suid", 0o4755), ("sgid", 0o2755)):
    shutil.copy("/bin/true", path(name))
    os.chmod(path(name), mode)
    if not os.stat(path(name)).st_mode & 0o6000:
        print("this file system keeps no set-uid bits")
        raise SystemExit(77)
    words = ["set-uid", "setuid", "set-user", "set-group", "setgid", "set-gid"]
    refused(profile("a.tally", path(name)), f"{name} program", (125, 126), words)
if os.path.exists(path("a.tally")):
    complain("a profile was written")
finish()
