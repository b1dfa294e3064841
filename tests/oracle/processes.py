"""Runs commands for tests: same surroundings every time, a deadline, and nothing left behind.

Counts depend on more than the program: ld.so walks the environment, string functions take other
paths for other alignments, shells do other things where signals are ignored.  So every run gets the
same environment and working folder, no signal ignored, its output goes to files, and address
randomization is off (setarch -R).
"""
import os
import signal
import subprocess
import time

ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "TZ": "UTC",
    # Tally finds the totals of threads by another way as well, and compares.
    "TALLY_CHECK": "1",
    # From the second run of a program on, a test's runs use what the first has left.
    "TALLY_CACHE": os.environ.get("TALLY_CACHE", ""),
}

# What is ignored here (nohup, a job in the background) would be ignored in every program; what is
# handled is not.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda number, frame: None)


class Outcome:
    """What a command did: status (0..255), or signal, or neither when it ran out of time."""

    def __init__(self, status, signal_number, stdout, stderr, seconds, leftover):
        self.status = status
        self.signal = signal_number
        self.stdout = stdout
        self.stderr = stderr
        self.seconds = seconds
        self.leftover = leftover

    def end(self):
        if self.signal:
            return "signal=" + signal.Signals(self.signal).name
        return f"status={self.status}" if self.status is not None else "timeout"


def members_of_group(group):
    """Processes (not zombies) of a process group or session, as (pid, command) pairs."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                text = f.read()
        except OSError:
            continue
        command = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        if fields[0] not in "ZX" and group in (int(fields[2]), int(fields[3])):
            found.append((int(name), command))
    return found


def alive(pid):
    """Whether a process is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def run(command, folder, label, timeout, stdin=None, env=None, randomize=False, cwd=None):
    """Runs `command`; stdout and stderr are kept in folder/label.stdout and .stderr."""
    os.makedirs(folder, exist_ok=True)
    out_path = os.path.join(folder, label + ".stdout")
    err_path = os.path.join(folder, label + ".stderr")
    prefix = [] if randomize else ["/usr/bin/setarch", "-R"]
    began = time.monotonic()
    with open(out_path, "wb") as out, open(err_path, "wb") as err, open(
        stdin or os.devnull, "rb"
    ) as source:
        child = subprocess.Popen(
            prefix + command,
            stdin=source,
            stdout=out,
            stderr=err,
            env=dict(ENVIRONMENT if env is None else env),
            cwd=cwd or folder,
            start_new_session=True,
        )
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
    leftover = settle(child.pid) if code is not None else []
    end_group(child.pid)
    if code is None:
        child.wait()
    with open(out_path, "rb") as f:
        stdout = f.read()
    with open(err_path, "rb") as f:
        stderr = f.read()
    status = code if code is not None and code >= 0 else None
    number = -code if code is not None and code < 0 else None
    return Outcome(status, number, stdout, stderr, time.monotonic() - began, leftover)


def settle(group):
    """What is still alive of the group after the command has ended, given a moment to go."""
    for _ in range(20):
        left = members_of_group(group)
        if not left:
            return []
        time.sleep(0.05)
    return left


def descendants(root):
    """Processes whose line of parents leads to `root`, itself included."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                parents[int(name)] = int(f.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def end_group(group):
    """Ends what this test started, and only that: the session, and what else its leader began.

    A session's number is not given away while it has members, so neither can be another's.
    """
    pids = {pid for pid, _ in members_of_group(group)}
    for pid in pids | (descendants(group) if group in pids else set()):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
