#!/usr/bin/env python3
"""multiprocessing in Python, by fork and by spawn: same answers, every process counted exactly."""
import json
import sys

from refusal import accepted, complain, finish, path, profile

PROGRAM = """
import multiprocessing, os, sys, threading
def square(n):
    return sum(i * i for i in range(n))
def thread_in_child(queue):
    threads = [threading.Thread(target=lambda n=n: queue.put(square(n))) for n in (50, 60)]
    for t in threads: t.start()
    for t in threads: t.join()
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(square, range(100, 108)))
    queue = context.Queue()
    child = context.Process(target=thread_in_child, args=(queue,))
    child.start()
    print(sorted(queue.get() for _ in range(2)))
    child.join()
    print(child.exitcode)
"""


def square(n):
    return sum(i * i for i in range(n))


with open(path("program.py"), "w", encoding="utf-8") as f:
    f.write(PROGRAM)
expected = f"{[square(n) for n in range(100, 108)]}\n{[square(50), square(60)]}\n0\n"
for method in ("fork", "spawn"):
    name = method + ".tally"
    command = profile(name, sys.executable, "-S", path("program.py"), method)
    done = accepted(command, method, timeout=300)
    if done.stdout.decode() != expected:
        complain(f"{method}: said {done.stdout.decode()!r}")
    report = json.loads(accepted(["report", path(name), "--format=json"], method).stdout)
    if report["issues"] or not all(run["balanced"] for run in report["runs"]):
        complain(f"{method}: not exact: {report['issues']} {report['runs']}")
    if len(report["runs"]) < 4:
        complain(f"{method}: only {len(report['runs'])} processes were counted")
    total = sum(thread["instructions"] for thread in report["threads"])
    if total != report["totals"]["instructions"]:
        complain(f"{method}: threads {total}, all {report['totals']['instructions']}")
finish()
