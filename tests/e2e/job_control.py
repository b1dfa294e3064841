#!/usr/bin/env python3
"""Job control at a terminal: ^C, ^Z, fg and bg, with Tally under a shell and a shell under Tally.

A pseudo terminal stands for the terminal, bash for the user's shell.  What is waited for are the
program's own words and what bash says of its jobs; nothing depends on how fast it goes.
"""
import json
import os
import pty
import re
import select
import shutil
import signal
import termios
import time

from refusal import TALLY, accepted, compile_c, complain, finish, path

BASH = shutil.which("bash")
if BASH is None:
    print("bash is not installed")
    raise SystemExit(77)

# Says what it hears; counts as long as it is let.
TICKER = compile_c(
    "ticker",
    r"""
    #include <signal.h>
    #include <stdio.h>
    #include <unistd.h>
    static volatile int interrupted;
    static void on_int(int n) { interrupted = 1; }
    int main(int argc, char** argv) {
      if (argc > 1) signal(SIGINT, on_int);
      for (int i = 0; !interrupted; i++) {
        printf("tick %d\n", i);
        fflush(stdout);
        usleep(20000);
      }
      puts("interrupted");
      return 5;
    }
    """,
)


class Terminal:
    """A command at a terminal of its own."""

    def __init__(self, what, *command):
        self.what, self.seen = what, ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(os.environ["WORK"])
            os.environ.update(PS1="PROMPT> ", TERM="dumb", PATH="/usr/bin:/bin", HISTFILE="")
            os.execv(command[0], list(command))

    def send(self, text):
        os.write(self.fd, text.encode())

    def interrupt(self):
        """^C, of which the shell's command dies."""
        self.send("\x03")
        self.wait_for("PROMPT> ")
        self.send("echo status=$?\n")
        self.wait_for("status=130\n")  # 128 + SIGINT

    def wait_for_lines(self):
        """Until the terminal is the command's: what is typed while the shell still reads single
        keys is no line for the command, natively neither."""
        for _ in range(300):
            if termios.tcgetattr(self.fd)[3] & termios.ICANON:
                return
            time.sleep(0.1)
        complain(f"{self.what}: the terminal does not read lines")

    def foreground(self):
        """The process group that ^C is for."""
        return os.tcgetpgrp(self.fd)

    def wait_for_other_foreground(self, before):
        """Until the shell has given the terminal away: what a job in the background prints may
        come before that, and a ^C would be the shell's."""
        for _ in range(300):
            if self.foreground() != before:
                return
            time.sleep(0.1)
        complain(f"{self.what}: the terminal is not the job's")

    def wait_for(self, pattern, timeout=30):
        """The match; what is behind it is still to be seen."""
        end = time.monotonic() + timeout
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end() :]
                return found
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.fd], [], [], left)[0]:
                complain(f"{self.what}: waited for {pattern!r}, got {self.seen[-400:]!r}")
                self.kill()
                finish()
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace").replace("\r", "")
            except OSError:
                complain(f"{self.what}: ended before {pattern!r}: {self.seen[-400:]!r}")
                finish()

    def kill(self):
        """Everything in the session, by its id."""
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.getsid(int(entry)) == self.pid:
                    os.kill(int(entry), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def states(self):
        """State letters of the processes in the terminal's foreground or stopped jobs, by name."""
        states = {}
        for entry in os.listdir("/proc"):
            try:
                if not entry.isdigit() or os.getsid(int(entry)) != self.pid:
                    continue
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as f:
                    name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
                states[name] = rest.split()[0]
            except (OSError, ValueError):
                continue
        return states

    def end(self):
        """Exit status of the command, which is about to end."""
        for _ in range(300):
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode(errors="replace")
                except OSError:
                    time.sleep(0.1)
        complain(f"{self.what}: does not end: {self.seen[-400:]!r}")
        self.kill()
        return None


def check_profile(name, what, ended):
    done = accepted(["report", path(name), "--format=json"], what)
    report = json.loads(done.stdout)
    if report["issues"] or not report["flow"]["balanced"]:
        complain(f"{what}: not exact: {report['issues']} {report['flow']['faults']}")
    run = report["run"]
    got = (run["exited"], run["exit_status"], run["signal"])
    if got != ended:
        complain(f"{what}: ended as {got}, not {ended}")


def shell_with_tally():
    """Tally and its program are one job of an interactive shell."""
    t = Terminal("tally under bash", BASH, "--norc", "--noprofile", "-i")
    t.wait_for("PROMPT> ")
    t.send(f"{TALLY} profile -o job.tally -- {TICKER}\n")
    t.wait_for(r"tick 3\n")
    t.send("\x1a")
    t.wait_for(r"Stopped[^\n]*ticker")
    states = t.states()
    names = (os.path.basename(TALLY)[:15], "ticker")
    if not all(states.get(name) in ("T", "t") for name in names):
        complain(f"behind ^Z: {states}")
    t.wait_for("PROMPT> ")
    shell = t.foreground()
    t.send("fg\n")
    t.wait_for_other_foreground(shell)
    t.wait_for(r"tick \d+\n")
    t.wait_for(r"tick \d+\n")
    t.send("\x1a")
    t.wait_for(r"Stopped[^\n]*ticker")
    t.send("bg\n")
    t.wait_for(r"tick \d+\n")
    t.wait_for(r"tick \d+\n")
    shell = t.foreground()
    t.send("fg\n")
    t.wait_for_other_foreground(shell)
    t.wait_for(r"tick \d+\n")
    t.interrupt()
    t.send(f"{TALLY} profile -o handled.tally -- {TICKER} handles\n")
    t.wait_for(r"tick 3\n")
    t.send("\x03")
    t.wait_for("interrupted\n")
    t.send("echo status=$?\n")
    t.wait_for("status=5\n")
    t.send(f"{TALLY} profile -o cat.tally -- cat\n")
    t.wait_for("cat\n")
    t.wait_for_lines()
    t.send("a line\n")
    t.wait_for("a line\n")
    t.wait_for("a line\n")
    t.send("\x03")
    t.wait_for("PROMPT> ")
    # In the background, reading from the terminal stops it.
    t.send(f"{TALLY} profile -o tty.tally -- cat &\n")
    t.wait_for("PROMPT> ")
    for _ in range(100):
        t.send("jobs\n")
        if "Stopped" in t.wait_for(r"jobs\n([^>]*)PROMPT> ").group(1):
            break
        time.sleep(0.1)
    else:
        complain("cat in the background was not stopped for reading from the terminal")
    t.send("fg\n")
    t.wait_for("cat\n")
    t.wait_for_lines()
    t.send("\x04")
    t.wait_for("PROMPT> ")
    t.send("exit 7\n")
    if (status := t.end()) != 7:
        complain(f"the shell ended with {status}")
    check_profile("job.tally", "^Z, fg, bg, ^C", (False, 0, signal.SIGINT))
    check_profile("handled.tally", "^C with a handler", (True, 5, 0))
    check_profile("cat.tally", "^C to cat", (False, 0, signal.SIGINT))
    check_profile("tty.tally", "cat in the background", (True, 0, 0))


def shell_under_tally():
    """An interactive shell under Tally controls jobs of its own, which are traced, too."""
    command = [TALLY, "profile", "-o", "shell.tally", "--", BASH, "--norc", "--noprofile", "-i"]
    t = Terminal("bash under tally", *command)
    t.wait_for("PROMPT> ")
    t.send(f"{TICKER}\n")
    t.wait_for(r"tick 3\n")
    t.send("\x1a")
    t.wait_for(r"Stopped[^\n]*ticker")
    t.send("bg\n")
    t.wait_for(r"tick \d+\n")
    shell = t.foreground()
    t.send("fg\n")
    t.wait_for_other_foreground(shell)
    t.wait_for(r"tick \d+\n")
    t.interrupt()
    t.send("sleep 100 | cat &\n")
    t.wait_for("PROMPT> ")
    t.send("kill -STOP %1; kill -CONT %1; kill %1; wait %1; echo waited=$?\n")
    t.wait_for("waited=143\n")  # cat was terminated
    t.send("exit 9\n")
    if (status := t.end()) != 9:
        complain(f"bash under Tally ended with {status}")
    check_profile("shell.tally", "an interactive shell", (True, 9, 0))


shell_with_tally()
shell_under_tally()
finish()
