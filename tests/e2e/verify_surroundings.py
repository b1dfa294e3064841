#!/usr/bin/env python3
"""`tally verify` where the profile was made in other surroundings: a right one is not accused.

  addresses      a profile made with random addresses: what depends on them is *environment*
  variables      ... and what depends on a variable more; what shells set is as it was then
  unwinding      ... in a procedure that nothing but its symbol describes, as Go's
  mappings       a program that reads /proc/self/maps sees Tally's memory under `tally profile`
  order          ... whose memory was placed upwards
  damaged        a wrong count in code that depends on none of it stays *wrong* in all of these
  links          the program is named by a symbolic link
  missing        an edge that the profile lacks is found by both engines
  command        a profile of another command line says so
  ends           ^C ends a translation; --budget never means one; the report's file is tried first
"""
import json
import os
import signal
import subprocess
import sys
import time

import processes
from verifying import (SOURCES, TALLY, WORK, expect, finish, plain_edges, ranges_of, run,
                       write_plain)

ENGINES = ("trap", "translate")


def compile_program(name, *flags, source=None):
    path = os.path.join(WORK, name)
    source = os.path.join(SOURCES, (source or name) + ".c")
    subprocess.run(["gcc", "-O1", "-g", source, "-o", path, *flags], check=True, cwd=WORK)
    return path


def profile(command, label, **more):
    file = os.path.join(WORK, label + ".tally")
    done = run([TALLY, "profile", "-o", file, "--", *command], "profile-" + label, **more)
    expect(done.status == 0, f"profile {label}: {done.end()}")
    return file


def verify(command, file, label, *options, **more):
    result = os.path.join(WORK, label + ".json")
    line = [TALLY, "verify", "--profile=" + file, "--format=json", "-o", result, *options]
    done = run(line + ["--", *command], label, **more)
    with open(result, encoding="utf-8") as f:
        return done, json.load(f)


def in_program(verdict, program):
    return [f for f in verdict["findings"] if f["module"] == program]


def not_accused(label, done, verdict, program, procedure):
    """All findings are *environment*, with what another run counted; one is in `procedure`."""
    expect(done.status == 1 and verdict["verdict"] == "not verified",
           f"{label}: {done.end()}, {verdict['verdict']}")
    reasons = {f["reason"] for f in verdict["findings"]}
    expect(reasons == {"environment"}, f"{label}: {reasons} {verdict['findings'][:2]}")
    own = [f for f in in_program(verdict, program) if f.get("name") == procedure]
    expect(own, f"{label}: nothing in {procedure}: {verdict['findings'][:2]}")
    expect(all("counts" in f["evidence"] or "change" in f["evidence"] for f in own),
           f"{label}: {own[:1]}")


def damage_stays_wrong(program, file, label, **more):
    """One edge of `fixed` is off by one: wrong, however much else depends on the surroundings."""
    begin, end = ranges_of(program)["fixed"]
    edges = plain_edges(file, program)
    inside = [e for e in edges if all(begin <= int(a, 16) < end for a in e)]
    expect(inside, f"{label}: no edges within fixed")
    edges[inside[0]] += 1
    for engine in ENGINES:
        done, verdict = verify([program], write_plain(edges, label), f"{label}-{engine}",
                               "--engine=" + engine, **more)
        wrong = [f for f in verdict["findings"] if f["reason"] == "wrong"]
        expect(done.status == 1 and len(wrong) == 1, f"{label}, {engine}: {wrong[:3]}")
        expect(wrong and wrong[0].get("name") == "fixed", f"{label}, {engine}: {wrong[:1]}")
        expect(verdict["verdict"] == "WRONG", f"{label}, {engine}: {verdict['verdict']}")


def addresses(program):
    file = profile([program], "random", randomize=True)
    done, verdict = verify([program], file, "random", randomize=True)
    not_accused("random", done, verdict, program, "by_address")
    damage_stays_wrong(program, file, "random-damaged", randomize=True)


def variables(program):
    more = dict(processes.ENVIRONMENT, ANOTHER="1", _="/bin/a", SHLVL="3")
    file = profile([program], "variables", env=more)
    done, verdict = verify([program], file, "variables")
    expect(any(f.get("name") == "by_variables" for f in in_program(verdict, program)),
           "a variable more does not show")
    expect(all(f["reason"] == "environment" for f in verdict["findings"]),
           f"variables: {verdict['findings'][:3]}")
    # Shells set these by themselves: as long as they are.
    done, verdict = verify([program], file, "shell", env=dict(more, _="/usr/bin/else", SHLVL="12"))
    expect(done.status == 0 and verdict["verified"], f"shell: {verdict['findings'][:2]}")


def without_unwinding():
    """The way of short variables was taken twice more; what is tried is a long one more."""
    program = compile_program("by_variables", "-fno-asynchronous-unwind-tables")
    more = dict(processes.ENVIRONMENT, SHORT="1", BRIEF="2")
    file = profile([program], "unwinding", env=more)
    done, verdict = verify([program], file, "unwinding")
    not_accused("unwinding", done, verdict, program, "look")


def mappings():
    program = compile_program("by_mappings", "-DMAPPINGS", source="by_place")
    file = profile([program], "mappings")
    done, verdict = verify([program], file, "mappings")
    not_accused("mappings", done, verdict, program, "by_mappings")
    damage_stays_wrong(program, file, "mappings-damaged")


def order():
    """A profile that was made where memory is placed upwards."""
    program = compile_program("by_order", "-DORDER", source="by_place")
    file = os.path.join(WORK, "order.tally")
    done = run(["/usr/bin/setarch", "-L", TALLY, "profile", "-o", file, "--", program],
               "profile-order", randomize=True)
    expect(done.status == 0, f"profile order: {done.end()}")
    done, verdict = verify([program], file, "order", randomize=True)
    not_accused("order", done, verdict, program, "by_order")
    damage_stays_wrong(program, file, "order-damaged", randomize=True)


def links(program):
    link = os.path.join(WORK, "a_link")
    os.symlink(program, link)
    file = profile([link], "link")
    for engine in ENGINES:
        done, verdict = verify([link], file, "link-" + engine, "--engine=" + engine)
        expect(done.status == 0 and verdict["verified"],
               f"a link, {engine}: {verdict['findings'][:2]}")


def missing(program):
    file = profile([program], "missing")
    edges = plain_edges(file, program)
    begin, end = ranges_of(program)["fixed"]
    inside = [e for e in edges if edges[e] and all(begin <= int(a, 16) < end for a in e)]
    for engine in ENGINES:
        done, verdict = verify([program], write_plain(edges, "whole"), "whole-" + engine,
                               "--engine=" + engine)
        expect(done.status == 0 and verdict["verified"], f"{engine}: {verdict['findings'][:3]}")
        for edge in inside:
            less = {e: n for e, n in edges.items() if e != edge}
            done, verdict = verify([program], write_plain(less, "less"), "less-" + engine,
                                   "--engine=" + engine)
            found = [(f["kind"], f["reason"], f["address"], f["counted"])
                     for f in verdict["findings"]]
            expect(done.status == 1, f"{engine}: without {edge}: {done.end()}")
            expect(found == [("missing edge", "structure", edge[0], edges[edge])],
                   f"{engine}: without {edge} ({edges[edge]}): {found}")


def command():
    program = "/bin/echo"
    file = profile([program, "a"], "echo")
    done, verdict = verify([program, "abc", "d"], file, "echo")
    said = [r for r in verdict["remarks"] if r.startswith("the profile is of another command: ")]
    expect(done.status == 1 and said, f"another command: {verdict['remarks']}")


def ends(program):
    endless = compile_program("endless")
    symbols = ranges_of(endless)
    plain = os.path.join(WORK, "endless.edges")
    main = hex(symbols["main"][0])
    with open(plain, "w", encoding="utf-8") as f:
        f.write(f"{main} {main} 0\n")
    result = os.path.join(WORK, "interrupted.json")
    child = subprocess.Popen([TALLY, "verify", "--profile=" + plain, "--engine=translate",
                              "--format=json", "-o", result, "--", endless], cwd=WORK)
    time.sleep(3)
    child.send_signal(signal.SIGINT)
    status = child.wait(30)
    expect(status == 1 and os.path.exists(result), f"^C: status {status}")
    with open(result, encoding="utf-8") as f:
        verdict = json.load(f)
    expect(verdict.get("why_incomplete") == "interrupted" and verdict["verdict"] == "not done",
           f"^C: {verdict}")
    done, verdict = verify([endless], plain, "budget", "--budget=1s")
    expect(verdict["engine"] == "trap" and not verdict["complete"], "a budget without traps")
    line = [TALLY, "verify", "--profile=" + plain]
    done = run([*line, "--engine=translate", "--budget=1s", "--", endless], "refused")
    expect(done.status == 2, f"a budget for a translation: {done.end()}")
    done = run([*line, "-o", "/nonexistent/x", "--", program], "unwritable")
    expect(done.status == 125 and not done.stdout, f"no place for the report: {done.end()}")


def main():
    program = compile_program("by_place")
    addresses(program)
    variables(program)
    without_unwinding()
    mappings()
    order()
    links(program)
    missing(program)
    command()
    ends(program)
    return finish()


if __name__ == "__main__":
    sys.exit(main())
