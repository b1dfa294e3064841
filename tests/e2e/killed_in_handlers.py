#!/usr/bin/env python3
"""Children that do nothing but run handlers of signals, nested ones too, are killed from outside at
any moment: in front of a handler, inside, on the way back.  What they count themselves, in memory
that outlives them, is what the profile says.  Only a child of which the kernel shows nothing any
more, since it was killed while a signal was being delivered to it, may be named for that."""
import csv
import io
import os
import sqlite3

from own_counts import addresses
from refusal import accepted, compile_c, complain, finish, path

SESSIONS, KILLED = 8, 25
KINDS = ("ROUND", "OUTER", "INNER", "BACK")
PROGRAM = compile_c(
    "handlers",
    r"""
    #include <fcntl.h>
    #include <signal.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    enum { ROUND, OUTER, INNER, BACK };
    static volatile unsigned long* counts;
    #define COUNT(kind) \
      __asm__ volatile(".globl at_" #kind "\nat_" #kind ": lock incq %0" \
                       : "+m"(counts[kind]) : : "cc")
    static void inner(int number) { (void)number; COUNT(INNER); }
    static void outer(int number) {
      (void)number;
      COUNT(OUTER);
      if (counts[OUTER] % 3 == 0) raise(SIGUSR2);
    }
    int main(int argc, char** argv) {
      const int file = open(argv[1], O_RDWR);
      counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      signal(SIGUSR1, outer);
      signal(SIGUSR2, inner);
      for (int i = 0; i < KILLED; ++i) {
        int fds[2];
        if (pipe(fds) != 0) return 2;
        const pid_t child = fork();
        if (child == 0) {
          for (;;) {
            COUNT(ROUND);
            if (raise(SIGUSR1) != 0 || write(fds[1], "!", 1) != 1) _exit(3);
            COUNT(BACK);
            close(fds[1]);
            fds[1] = open("/dev/null", O_WRONLY);
          }
        }
        close(fds[1]);
        char begun;
        if (read(fds[0], &begun, 1) != 1) return 4;
        usleep(300 + 431 * i);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(fds[0]);
      }
      return 0;
    }
    """,
    f"-DKILLED={KILLED}",
)


def check(session):
    """Returns whether all of its children could be seen to their end."""
    shared, file = path("counts"), path("handlers.tally")
    with open(shared, "wb") as f:
        f.write(bytes(4096))
    accepted(["profile", "-o", file, "--", PROGRAM, shared], f"session {session}", quiet=False)
    with open(shared, "rb") as f:
        own = {kind: int.from_bytes(f.read(8), "little") for kind in KINDS}
    if own["OUTER"] < KILLED or own["INNER"] == 0 or own["BACK"] == 0:
        complain(f"session {session}: the children have hardly run: {own}")
    with sqlite3.connect(file) as database:
        issues = [m for (m,) in database.execute("SELECT message FROM issues ORDER BY id")]
    vanished = [m for m in issues if "vanished" in m]
    if vanished:
        print(f"session {session}: {len(vanished)} vanished")
        return False
    for message in issues:
        complain(f"session {session}: {message}")
    text = accepted(["dump", "instructions", file, "--format=csv"], f"dump {session}").stdout
    counted = {int(row["address"], 16): int(row["count"])
               for row in csv.DictReader(io.StringIO(text.decode())) if row["module"] == PROGRAM}
    for kind, address in addresses(PROGRAM).items():
        if counted.get(address, 0) != own[kind]:
            complain(f"session {session}, {kind}: the profile has {counted.get(address)}, it was "
                     f"{own[kind]}")
    return True


os.environ["LC_ALL"] = "C"
if sum(check(session) for session in range(SESSIONS)) < SESSIONS / 2:
    complain("the kernel showed nothing of a child in most of the sessions")
finish()
