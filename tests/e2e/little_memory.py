#!/usr/bin/env python3
"""Little address space: it works or is refused in one line; no crash, no hang, nothing left."""
import resource

from refusal import complain, finish, path, profile, run

for megabytes in (24, 48, 96, 192, 400, 1000):
    limit = megabytes << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        done = run(profile("a.tally", "/bin/echo", "ran"), f"{megabytes} MB")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    print(f"{megabytes} MB: {done.end()} {done.stderr.decode(errors='replace').strip()}")
    if done.status == 0:
        if done.stdout != b"ran\n":
            complain(f"{megabytes} MB: stdout {done.stdout!r}")
    elif done.status not in (125, 127) or len(done.stderr.splitlines()) != 1:
        complain(f"{megabytes} MB: {done.end()}: not refused in one line")
finish()
