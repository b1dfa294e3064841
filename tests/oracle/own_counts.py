"""Programs that count what they do, in memory that outlives them, against what a profile says.

Such a program gets a file of 64-bit words as its first argument and a mode as its second, and
marks each instruction that counts with a symbol `at_...`."""
import collections
import csv
import io
import os
import sqlite3
import subprocess

from refusal import accepted, complain, expect_accepted, path, run

# Of one test, runs with a child whose end was hidden from Tally: one may be made again.
_hidden = []

# Children that execute the program in the mode `mode_of(i)` and are killed at some moment, once
# they have written a byte, and HAS_COME_FAR(i): beside other work, the moment alone would be early
# in all of them.
KILL_CHILDREN = r"""
#ifndef HAS_COME_FAR
#define HAS_COME_FAR(i) 1
#endif
static void kill_children(char** argv, const char* (*mode_of)(int)) {
  for (int i = 0; i < KILLED; ++i) {
    int fds[2];
    if (pipe(fds) != 0) exit(4);
    const pid_t child = fork();
    if (child == 0) {
      dup2(fds[1], 1);
      execl(argv[0], argv[0], argv[1], mode_of(i), NULL);
      _exit(5);
    }
    close(fds[1]);
    char begun;
    if (read(fds[0], &begun, 1) != 1) exit(6);
    for (int waited_ms = 0; !HAS_COME_FAR(i); ++waited_ms) {
      if (waited_ms == 60000) exit(8);
      usleep(1000);
    }
    usleep(200 + 331 * i);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(fds[0]);
  }
}
"""


def symbols(program):
    """Names, addresses and sizes (0: none) of what the program defines."""
    lines = subprocess.run(["nm", "-S", program], check=True, capture_output=True, text=True)
    fields = [line.split() for line in lines.stdout.splitlines()]
    return {f[-1]: (int(f[0], 16), int(f[1], 16) if len(f) == 4 else 0)
            for f in fields if len(f) >= 3}


def addresses(program):
    """Of the instructions that count, by what follows `at_`."""
    return {name[3:]: at for name, (at, _) in symbols(program).items() if name.startswith("at_")}


def blank(file, words):
    with open(file, "wb") as f:
        f.write(bytes(8 * words))


def words_of(file):
    with open(file, "rb") as f:
        content = f.read()
    return [int.from_bytes(content[i:i + 8], "little") for i in range(0, len(content), 8)]


def dumped(what, file, said):
    text = accepted(["dump", what, file, "--format=csv"], f"{said}, dump").stdout
    return list(csv.DictReader(io.StringIO(text.decode())))


def counts_of(rows):
    counted = collections.Counter()
    for row in rows:
        counted[row["module"], int(row["address"], 16)] += int(row["count"])
    return counted


def expect_own(said, counted, module, own, number_of=int):
    """`own` by `number_of` what follows `at_`."""
    for name, address in addresses(module).items():
        if counted[module, address] != own[number_of(name)]:
            complain(f"{said}: the profile has {counted[module, address]} at {name} of {module}, "
                     f"it was {own[number_of(name)]}")


class CountedRun:
    """A profile of such a program: what it counted, and the rows of its own that have counts."""
    def __init__(self, program, mode, words, *options, number_of=int, env=None):
        self.what = f"{os.path.basename(program)} {mode} {' '.join(options)}"
        shared, self.file = path("counts"), path("run.tally")
        command = ["profile", "-o", self.file, *options, "--", program, shared, mode]
        blank(shared, words)
        done = run(command, self.what, timeout=120, env=env)
        # Who is killed from outside at the very moment at which Tally lets a thread go on may end
        # unseen, and is named then (docs/bugs.md, "Threads that vanished at the birth of another").
        if mode == "kill" and not _hidden and done.status == 0 and self.has_vanished():
            _hidden.append(self.what)
            blank(shared, words)
            done = run(command, self.what, timeout=120, env=env)
        self.stdout = expect_accepted(done, self.what).stdout
        self.own = words_of(shared)
        self.at = {number_of(name): at for name, at in addresses(program).items()}
        self.rows, self.edges = self.dump("instructions", program), self.dump("edges", program)
        expect_own(self.what, counts_of(self.rows), program, self.own, number_of)

    def has_vanished(self):
        with sqlite3.connect(self.file) as database:
            issues = [message for (message,) in database.execute("SELECT message FROM issues")]
        if not any(message.startswith("vanished") for message in issues):
            return False
        print(f"{self.what}: a thread ended unseen, and {len(issues)} things are named")
        return True

    def dump(self, what, program):
        own = [row for row in dumped(what, self.file, self.what)
               if row["module"] == program and row["count"] != "0"]
        return [{k: v for k, v in row.items() if k != "source"} for row in own]

    def fact(self, name):
        with sqlite3.connect(self.file) as database:
            values = database.execute("SELECT value FROM facts WHERE name = ?", (name,))
            return sum(int(value) for (value,) in values)
