#!/usr/bin/env python3
"""Where an earlier run says which indirect branch leads to a block most, its stub lies in front of
the block: a later run of an interpreter has such stubs, for handlers and for what it calls, and
counts the same; so do runs in which the branches go elsewhere, handlers of signals interrupt them,
or something else is done otherwise."""
import csv
import io
import json
import os

from refusal import accepted, compile_c, complain, finish, path

# A loop around a switch, two of whose handlers call through a table, and jumps through labels.
# With `t` the program goes other ways; with `a` it is interrupted all the time.
SOURCE = r"""
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/time.h>
    static volatile sig_atomic_t alarms;
    static void on_alarm(int number) { (void)number; alarms++; }
    #define CALLEE(n) __attribute__((noinline, noclone)) \
      static unsigned long f##n(unsigned long x) { return x * (2 * n + 3) + n; }
    CALLEE(0) CALLEE(1) CALLEE(2) CALLEE(3) CALLEE(4) CALLEE(5) CALLEE(6) CALLEE(7)
    static unsigned long (*volatile callees[])(unsigned long) = {f0, f1, f2, f3, f4, f5, f6, f7};
    static unsigned char program[4096];
    __attribute__((noinline, noclone)) static unsigned long interpret(unsigned long rounds) {
      unsigned long a = 1, b = 2;
      for (unsigned long i = 0; i < rounds; i++) {
        switch (program[i % sizeof program]) {
          case 0: a += b; break;
          case 1: b ^= a >> 3; break;
          case 2: a = a * 5 + 1; break;
          case 3: b -= a; break;
          case 4: a = callees[b % 8](a); break;
          case 5: b = callees[a % 8](b); break;
          case 6: a ^= a << 7; break;
          case 7: if (a & 64) b++; else a--; break;
          case 8: b = b << 1 | b >> 63; break;
          case 9: a += i; break;
          default: abort();
        }
      }
      return a ^ b;
    }
    __attribute__((noinline, noclone)) static unsigned long thread(unsigned long rounds) {
      static const void *const labels[] = {&&one, &&two, &&three, &&four, &&five, &&six};
      unsigned long a = 7, i = 0;
    #define NEXT if (++i > rounds) return a; goto *labels[(a >> 2) % 6]
    one: a += 3; NEXT;
    two: a ^= a >> 5; NEXT;
    three: a = a * 9 + i; NEXT;
    four: a -= i; NEXT;
    five: a = a << 3 | a >> 61; NEXT;
    six: a += a >> 1; NEXT;
    }
    int main(int argc, char **argv) {
      unsigned long seed = 88172645463325252ul;
      const int turned = argc > 1 && strchr(argv[1], 't') != NULL;
      for (unsigned i = 0; i < sizeof program; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        program[i] = seed % (turned ? 3 : 10) + (turned ? 7 : 0);
      }
      if (argc > 1 && strchr(argv[1], 'a')) {
        struct itimerval often = {{0, 500}, {0, 500}};
        signal(SIGALRM, on_alarm);
        setitimer(ITIMER_REAL, &often, NULL);
      }
      printf("%lu %lu\n", interpret(400000), thread(400000));
      return argc > 1 && strchr(argv[1], 'a') && alarms == 0 ? 3 : 0;
    }
    """


class Run:
    def __init__(self, program, name, how="", options=()):
        done = accepted(["profile", "-o", path("f.tally"), *options, "--", program, how], name,
                        env=dict(os.environ, TALLY_CACHE=path("cache")))
        if b"not exact" in done.stderr:
            complain(f"{name} {how} {options}: {done.stderr!r}")
        dump = accepted(["dump", "profile", path("f.tally"), "--format=json"], name).stdout
        facts = {fact["name"]: fact["value"] for fact in json.loads(dump)["run"]}
        self.fronts, self.stdout = int(facts["stubs_in_front"]), done.stdout
        listing = accepted(["dump", "instructions", path("f.tally")], name).stdout
        mine = os.path.basename(program)
        self.rows = {row["address"]: int(row["count"])
                     for row in csv.DictReader(io.StringIO(listing.decode()))
                     if row["module"].endswith(mine)}
        accepted(["check", path("f.tally")], name)


for name, flags in {"pie": [], "no_pie": ["-no-pie", "-fno-pie"], "static": ["-static"]}.items():
    program = compile_c(name, SOURCE, "-O2", *flags)
    without = {how: Run(program, name, how, ["--no-opt=recall"]) for how in ("", "t")}
    first, _, later = (Run(program, name) for _ in range(3))
    off = Run(program, name, "", ["--no-opt=fronts"])
    print(f"{name}: {first.fronts} stubs in front in the first run, {later.fronts} later")
    # Ten handlers, eight procedures, six labels.  Some are fallen into, and have none.
    if later.fronts < 15:
        complain(f"{name}: a later run has {later.fronts} stubs in front")
    if off.fronts != 0:
        complain(f"{name}: switched off, {off.fronts} stubs lie in front")
    for what, run in (("the first run", first), ("a later run", later), ("switched off", off)):
        if (run.stdout, run.rows) != (without[""].stdout, without[""].rows) or not run.rows:
            complain(f"{name}: {what} differs")
    other = Run(program, name, "t")
    if (other.stdout, other.rows) != (without["t"].stdout, without["t"].rows):
        complain(f"{name}: other ways than recorded differ")
    # Handlers run how often they will; all else is the same.
    alarmed = Run(program, name, "a")
    if alarmed.stdout != without[""].stdout:
        complain(f"{name}: with alarms it prints {alarmed.stdout!r}")
    busy = [at for at, count in without[""].rows.items() if count > 10000]
    changed = [at for at in busy if alarmed.rows.get(at) != without[""].rows[at]]
    if changed or len(busy) < 50:
        complain(f"{name}: with alarms {len(changed)} of {len(busy)} counts changed: {changed[:5]}")
    for options in (["--stress-index"], ["--stress-renewal"], ["--no-opt=low32"],
                    ["--no-opt=order"], ["--no-opt=unspilled"], ["--no-opt=index"],
                    ["--no-opt=flags"], ["--placement=blocks"]):
        run = Run(program, name, "", options)
        if run.stdout != without[""].stdout or run.rows != without[""].rows:
            complain(f"{name}: {options} differs")
finish()
