#!/usr/bin/env python3
"""Attaching to running processes and letting them go: exact counts (the program is told how often
to do what while it is counted), nothing left behind, nothing noticed by the program."""
import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import time

from refusal import TALLY, WORK, accepted, complain, compile_c, finish, path, refused

children = []


def start(*command, **more):
    # Unbuffered: `select` must see every line that is there.
    child = subprocess.Popen(command, cwd=WORK, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             bufsize=0, start_new_session=True, **more)
    children.append(child)
    return child


def line_of(child, timeout=20):
    """A line of the program's output; it writes whole ones."""
    if not select.select([child.stdout], [], [], timeout)[0]:
        complain(f"no answer from {child.args[0]} within {timeout} s")
        return ""
    return child.stdout.readline().decode().strip()


def ask(child, text):
    child.stdin.write((text + "\n").encode())
    child.stdin.flush()
    return line_of(child)


class Attached:
    """Tally, attached; it counts from `begin` to `end`."""

    def __init__(self, pid, file, *options):
        self.file = path(file)
        self.tally = subprocess.Popen(
            [TALLY, "profile", "-v", f"--pid={pid}", "-o", self.file, *options], cwd=WORK,
            stderr=subprocess.PIPE)
        children.append(self.tally)
        first = self.tally.stderr.readline().decode()
        if "counting" not in first:
            complain(f"{file}: instead of counting: {first}")

    def end(self, number=signal.SIGINT, status=0):
        """Ends it; what it said but for where the profile is."""
        if number:
            self.tally.send_signal(number)
        try:
            said = self.tally.communicate(timeout=60)[1].decode()
        except subprocess.TimeoutExpired:
            complain(f"{self.file}: tally does not end")
            self.tally.kill()
            said = self.tally.communicate()[1].decode()
        if self.tally.returncode != status:
            complain(f"{self.file}: ended with {self.tally.returncode}: {said}")
        return "".join(x for x in said.splitlines(True) if "profile written" not in x)


def report(file, exact=True):
    text = accepted(["report", "--format=json", path(file)], f"report of {file}").stdout
    result = json.loads(text)
    for one in result["runs"]:
        if exact and (not one["balanced"] or one["issues"]):
            complain(f"{file}: run {one['number']} ({one['command'][:50]}) is not exact")
    return result


def entries(file, name):
    with sqlite3.connect(path(file)) as database:
        tables = [r[0] for r in database.execute("SELECT name FROM sqlite_master")]
        if "procedures" in tables:
            rows = database.execute("SELECT entries FROM procedures WHERE name = ?", (name,))
            return sum(r[0] for r in rows)
    return None


def state(pid):
    """Everything that Tally must put back."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        maps = f.read()
    files = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            files[name] = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            pass
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        status = f.read()
    wanted = ("TracerPid", "SigBlk", "SigIgn", "SigCgt", "Threads")
    return maps, files, {k: re.search(rf"{k}:\s*(\S+)", status).group(1) for k in wanted}


def compare(name, before, after):
    for what, a, b in zip(("mappings", "descriptors", "status"), before, after):
        if a != b:
            complain(f"{name}: {what} before:\n{a}\nafter:\n{b}")


# ---- counts: told from outside what to do while it is counted ----------------------------------
WORKER = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
volatile unsigned long sum;
__attribute__((noipa)) void work(void) { __atomic_fetch_add(&sum, 1, __ATOMIC_RELAXED); }
__attribute__((noipa)) void deeper(long depth, long n) {
  if (depth > 0) { deeper(depth - 1, n); sum += depth; return; }
  for (long i = 0; i < n; i++) work();
}
static int in[4][2], out[4][2];
static void* run(void* p) {
  long id = (long)p, n;
  for (;;) {
    if (read(in[id][0], &n, sizeof n) != sizeof n) { puts("FAILED read"); exit(1); }
    deeper(id, n);
    write(out[id][1], &n, sizeof n);
  }
}
__attribute__((noipa)) void serve(long depth) {
  if (depth > 0) { serve(depth - 1); sum++; return; }
  long n;
  while (scanf("%ld", &n) == 1 && n >= 0) {
    for (int i = 0; i < 4; i++) write(in[i][1], &n, sizeof n);
    deeper(3, n);
    for (int i = 0; i < 4; i++) read(out[i][0], &n, sizeof n);
    printf("%lu\n", sum); fflush(stdout);
  }
}
int main(void) {
  pthread_t t;
  for (long i = 0; i < 4; i++) { pipe(in[i]); pipe(out[i]); pthread_create(&t, 0, run, (void*)i); }
  serve(5);
  puts("end"); fflush(stdout);
  return 7;
}
"""


def counts():
    worker = start(compile_c("worker", WORKER, "-pthread"))
    ask(worker, "10")
    before = state(worker.pid)
    for i, n in enumerate((1000, 1, 77777)):
        attached = Attached(worker.pid, f"counts{i}.tally")
        ask(worker, str(n))
        ask(worker, str(n))
        said = attached.end(signal.SIGINT if i else signal.SIGTERM)
        if said:
            complain(f"counts: {said}")
        compare("counts", before, state(worker.pid))
        report(f"counts{i}.tally")
        for name, wanted in (("work", 10 * n), ("deeper", 2 * (1 + 2 + 3 + 4 + 4)), ("serve", 0)):
            got = entries(f"counts{i}.tally", name)
            if got != wanted:
                complain(f"counts: {name} was entered {got} times, expected {wanted}")
    # Frames that are open at the attach return while it is counted, and the program ends.
    attached = Attached(worker.pid, "ends.tally")
    worker.stdin.write(b"5\n-1\n")
    worker.stdin.flush()
    line_of(worker)
    attached.end(None)
    if worker.wait(20) != 7 or line_of(worker) != "end":
        complain(f"ends: the program ended with {worker.returncode}")
    report("ends.tally")
    if entries("ends.tally", "work") != 25:
        complain("ends: wrong count")


# ---- threads in system calls -------------------------------------------------------------------
BLOCKED = r"""
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static int p[2], s[2];
static sem_t never;
static pthread_mutex_t locked = PTHREAD_MUTEX_INITIALIZER;
static volatile unsigned long beats, rounds[8];
static void failed(const char* what) { printf("FAILED %s: %s\n", what, strerror(errno)); exit(1); }
static double now(void) {
  struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void* reads(void* a) { char c; if (read(p[0], &c, 1) != 1) failed("read"); return 0; }
static void* epolls(void* a) {
  struct epoll_event e; int f = epoll_create1(0);
  for (;; rounds[0]++)
    if (epoll_wait(f, &e, 1, rounds[0] % 2 ? 70 : 1000) != 0) failed("epoll_wait");
}
static void* polls(void* a) { for (;; rounds[1]++) if (poll(0, 0, 50) != 0) failed("poll"); }
static void* selects(void* a) {
  for (;; rounds[2]++) {
    struct timeval t = {0, 60000}; if (select(0, 0, 0, 0, &t)) failed("select"); }
}
static void* sleeps(void* a) {
  for (;; rounds[3]++) {
    struct timespec t = {0, 200000000}; double begun = now();
    if (nanosleep(&t, 0)) failed("nanosleep");
    if (now() - begun < 0.2) failed("too short a sleep");
  }
}
static void* receives(void* a) {
  char c; struct timeval t = {0, 80000};
  setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
  for (;; rounds[4]++) if (recv(s[0], &c, 1, 0) != -1 || errno != EAGAIN) failed("recv");
}
static void* locks(void* a) { pthread_mutex_lock(&locked); failed("a held lock"); return 0; }
static void* waits(void* a) { if (sem_wait(&never)) failed("sem_wait"); failed("sem"); return 0; }
static void* timed(void* a) {
  for (;; rounds[5]++) {
    struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
    if ((t.tv_nsec += 40000000) >= 1000000000) { t.tv_nsec -= 1000000000; t.tv_sec++; }
    if (sem_timedwait(&never, &t) != -1 || errno != ETIMEDOUT) failed("sem_timedwait");
  }
}
static void* signals(void* a) {
  sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); struct timespec t = {0, 90000000};
  for (;; rounds[6]++)
    if (sigtimedwait(&set, 0, &t) != -1 || errno != EAGAIN) failed("sigtimedwait");
}
static void beat(int n) { beats++; }
int main(void) {
  void* (*all[])(void*) = {reads, epolls, polls, selects, sleeps,
                           receives, locks, waits, timed, signals};
  pthread_t t; sigset_t set;
  sigemptyset(&set); sigaddset(&set, SIGUSR1); sigaddset(&set, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &set, 0);
  pipe(p); socketpair(AF_UNIX, SOCK_STREAM, 0, s); sem_init(&never, 0, 0);
  pthread_mutex_lock(&locked);
  for (int i = 0; i < 10; i++) pthread_create(&t, 0, all[i], 0);
  // Only this thread has a timer's signal, whose handler interrupts what it does.
  signal(SIGALRM, beat);
  sigdelset(&set, SIGUSR1); pthread_sigmask(SIG_UNBLOCK, &set, 0);
  struct itimerval every = {{0, 7000}, {0, 7000}};
  setitimer(ITIMER_REAL, &every, 0);
  for (;;) {
    struct timespec t = {1, 0};
    while (nanosleep(&t, &t)) if (errno != EINTR) failed("main's nanosleep");
    for (int i = 0; i < 7; i++) printf("%lu ", rounds[i]);
    printf("%lu\n", beats); fflush(stdout);
  }
}
"""


def blocked():
    program = start(compile_c("blocked", BLOCKED, "-pthread"))
    line_of(program)
    before = state(program.pid)
    for i in range(6):
        attached = Attached(program.pid, "blocked.tally", f"--duration={i * 130 + 60}ms")
        said = attached.end(None)
        if said:
            complain(f"blocked: {said}")
        compare("blocked", before, state(program.pid))
        report("blocked.tally")
    lines, deadline = [line_of(program)], time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(lines) > 2 and not select.select([program.stdout], [], [], 0)[0]:
            break
        lines.append(line_of(program))
    if any("FAILED" in x for x in lines) or program.poll() is not None:
        complain(f"blocked: {lines}, {program.poll()}")
    first, last = ([int(x) for x in line.split()] for line in (lines[-2], lines[-1]))
    if any(b <= a for a, b in zip(first[1:], last[1:])):
        complain(f"blocked: something stands still: {lines[-2:]}")


# ---- signals, in handlers too ------------------------------------------------------------------
HANDLERS = r"""
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static volatile unsigned long beats, sum, jumps;
static sigjmp_buf back;
__attribute__((noipa)) unsigned long grind(unsigned long n) {
  unsigned long x = 1; for (unsigned long i = 0; i < n; i++) x = x * 3 + i; return x; }
static void beat(int n) { beats++; sum += grind(20000); }
static void jump(int n) { jumps++; siglongjmp(back, 1); }
static void* check(void* a) {  // a register that changes is noticed
  for (;;) {
    unsigned long x = grind(1000), y = grind(1000);
    double d = (double)(x >> 12) * 3, e = (double)(y >> 12) * 3;
    if (x != y || d != e) { puts("FAILED: arithmetic"); exit(1); }
  }
}
int main(void) {
  static char stack[65536];
  stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
  sigset_t usr; sigemptyset(&usr); sigaddset(&usr, SIGUSR1); sigaddset(&usr, SIGALRM);
  pthread_t t; pthread_sigmask(SIG_BLOCK, &usr, 0);
  pthread_create(&t, 0, check, 0);
  pthread_sigmask(SIG_UNBLOCK, &usr, 0);
  sigaltstack(&alternate, 0);
  struct sigaction on = {.sa_handler = beat, .sa_flags = SA_ONSTACK};
  sigaction(SIGALRM, &on, 0);
  signal(SIGUSR1, jump);
  signal(SIGTRAP, SIG_IGN);
  struct itimerval every = {{0, 3000}, {0, 3000}};
  setitimer(ITIMER_REAL, &every, 0);
  static volatile unsigned long i;
  sigsetjmp(back, 1);
  for (;;) {
    i++;
    if (i % 50 == 0) raise(SIGUSR1), abort();
    grind(20000);
    if (i % 1500 == 1) { printf("%lu %lu\n", beats, jumps); fflush(stdout); }
  }
}
"""


def handlers():
    program = start(compile_c("handlers", HANDLERS, "-pthread"))
    line_of(program)
    ignored = state(program.pid)[2]["SigIgn"]
    if not int(ignored, 16) >> (signal.SIGTRAP - 1) & 1:
        complain(f"handlers: SIGTRAP is not ignored to begin with: {ignored}")
    for i in range(8):
        attached = Attached(program.pid, "handlers.tally", f"--duration={i * 60 + 30}ms")
        said = attached.end(None)
        if said and not re.search("handler|back-trace", said):
            complain(f"handlers: {said}")
        report("handlers.tally", exact=not said)
        after = state(program.pid)[2]
        if after["TracerPid"] != "0" or after["SigIgn"] != ignored:
            complain(f"handlers: {after}")
    lines = [line_of(program) for _ in range(5)]
    if any("FAILED" in x or not x for x in lines) or program.poll() is not None:
        complain(f"handlers: {lines}, {program.poll()}")


# ---- children, exec, ends ----------------------------------------------------------------------
def processes_of_it():
    shell = start("sh", "-c", "while read x; do (echo sub; exit 3); /bin/echo $x$?; done; echo end")
    ask(shell, "a")
    line_of(shell)
    attached = Attached(shell.pid, "children.tally")
    for _ in range(3):
        ask(shell, "b")
        if line_of(shell) != "b3":
            complain("children: wrong output")
    attached.end()
    runs = report("children.tally")["runs"]
    if len(runs) < 7:
        complain(f"children: {len(runs)} runs")
    if ask(shell, "c") != "sub" or line_of(shell) != "c3":
        complain("children: the shell does not go on")
    # Children that run on while they are let go.
    attached = Attached(shell.pid, "children2.tally")
    shell.stdin.write(b"d\n" * 200)
    shell.stdin.flush()
    time.sleep(0.4)
    attached.end()
    report("children2.tally")
    shell.stdin.close()
    rest = shell.stdout.read().decode().split()
    if rest != ["sub", "d3"] * 200 + ["end"]:
        complain(f"children: {len(rest)} words of output")

    shell = start("sh", "-c", "read x; exec cat")
    time.sleep(0.2)
    attached = Attached(shell.pid, "exec.tally")
    shell.stdin.write(b"now\n")
    if ask(shell, "hello") != "hello":
        complain("exec: cat does not answer")
    attached.end()
    if [r["begun"] for r in report("exec.tally")["runs"]] != ["attach", "exec"]:
        complain("exec: not two runs")
    if ask(shell, "natively") != "natively" or state(shell.pid)[2]["TracerPid"] != "0":
        complain("exec: cat does not go on")

    # At once: the kernel may be about to make the interrupted call again.
    for _ in range(20):
        sleeper = start("sleep", "100")
        time.sleep(0.05)
        attached = Attached(sleeper.pid, "killed.tally")
        sleeper.kill()
        attached.end(None)
        report("killed.tally")

    # Stopped before, stopped afterwards.
    sleeper = start("sleep", "100")
    time.sleep(0.1)
    sleeper.send_signal(signal.SIGSTOP)
    Attached(sleeper.pid, "stopped.tally", "--duration=200ms").end(None)
    time.sleep(0.1)
    with open(f"/proc/{sleeper.pid}/stat", encoding="ascii") as f:
        if f.read().split()[2] != "T":
            complain("a stopped process is not stopped any more")
    sleeper.send_signal(signal.SIGCONT)
    sleeper.terminate()
    if sleeper.wait(10) != -signal.SIGTERM:
        complain(f"stopped: ended with {sleeper.returncode}")

    # A monitor that is killed takes the process along: it could not go on.
    sleeper = start("sleep", "100")
    time.sleep(0.1)
    Attached(sleeper.pid, "monitor.tally").end(signal.SIGKILL, -signal.SIGKILL)
    if sleeper.wait(10) != -signal.SIGKILL:
        complain(f"monitor killed: the process ended with {sleeper.returncode}")


UNSUPPORTED = r"""
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
static long base;
int main(void) {
  char line[80]; unsigned long got = 0;
  while (fgets(line, sizeof line, stdin)) {
    if (line[0] == 'g') syscall(SYS_arch_prctl, 0x1001, &base);
    syscall(SYS_arch_prctl, 0x1004, &got);
    printf("%d\n", got == (unsigned long)&base); fflush(stdout);
  }
}
"""


def unsupported():
    """What Tally cannot do ends the counting, not the process."""
    program = start(compile_c("unsupported", UNSUPPORTED))
    if ask(program, "x") != "0":
        complain("unsupported: the test is wrong")
    attached = Attached(program.pid, "unsupported.tally")
    if ask(program, "g") != "1":
        complain("unsupported: the program did not get its gs")
    if "gs" not in attached.end(None, 125):
        complain("unsupported: not named")
    if ask(program, "x") != "1":
        complain("unsupported: the program does not go on")
    refused(["profile", f"--pid={program.pid}"], "uses gs", 125, ["gs register"])


PATCHED = r"""
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
__attribute__((noipa, aligned(4096))) int answer(void) { return 11; }
int main(void) {
  char line[80]; unsigned char* p = (void*)answer;
  while (*p != 0xb8) p++;
  void* page = (void*)((uintptr_t)p & ~4095ul);
  mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC); p[1] = 22;
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  while (fgets(line, sizeof line, stdin)) { printf("%d\n", answer()); fflush(stdout); }
}
"""


def other_code_than_the_file():
    """Code that was changed before the attach; a program whose file is another by now."""
    patched = compile_c("patched", PATCHED)
    for file in ("patched", "replaced"):
        if file == "replaced":
            os.link(patched, path(file))
        program = start(path(file))
        ask(program, "x")
        if file == "replaced":
            os.unlink(path(file))
            with open("/bin/true", "rb") as a, open(path(file), "wb") as b:
                b.write(a.read())
        attached = Attached(program.pid, f"{file}.tally")
        answers = [ask(program, "x") for _ in range(20)]
        said = attached.end()
        if answers + [ask(program, "x")] != ["22"] * 21:
            complain(f"{file}: {answers}")
        report(f"{file}.tally", exact=not said)


# ---- coroutines ----------------------------------------------------------------------------------
COROUTINES = r"""
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
static ucontext_t host, guests[5];
static volatile int turns;
__attribute__((noinline)) void turn(int id, int depth) {
  turns++;
  if (depth > 0) turn(id, depth - 1); else swapcontext(&guests[id], &host);
  turns--;
}
static void body(int id) { for (;;) turn(id, 2); }
int main(void) {
  char line[80];
  for (int i = 0; i < 5; i++) {
    getcontext(&guests[i]);
    guests[i].uc_stack.ss_sp = malloc(60000);
    guests[i].uc_stack.ss_size = 60000;
    makecontext(&guests[i], (void (*)(void))body, 1, i);
    if (i < 4) swapcontext(&host, &guests[i]);
  }
  while (fgets(line, sizeof line, stdin)) {
    for (int i = 0; i < 5; i++) swapcontext(&host, &guests[i]);
    printf("%d\n", turns); fflush(stdout);
  }
}
"""


def coroutines():
    """Those that wait on stacks of their own at the attach go on, and wait at the detach."""
    flags = ("-fno-optimize-sibling-calls", "-fno-inline")
    program = start(compile_c("coroutines", COROUTINES, *flags))
    for times in (0, 1, 4):
        attached = Attached(program.pid, f"coroutines{times}.tally")
        answers = [ask(program, "x") for _ in range(times)]
        said = attached.end()
        if said or answers != ["15"] * times:
            complain(f"coroutines: {answers} {said}")
        report(f"coroutines{times}.tally")
        if entries(f"coroutines{times}.tally", "turn") != 3 * 5 * times:
            complain("coroutines: not 3 turns for each of 5")


def let_go_at_once():
    """The call that the attach has interrupted is about to be made again, or just has been."""
    program = start("cat")
    for i in range(60):
        attached = Attached(program.pid, "at_once.tally", f"--duration={2 + i % 3}ms")
        said = attached.end(None)
        if said:
            complain(f"at once: {said}")
        report("at_once.tally")
    if ask(program, "hello") != "hello":
        complain("at once: cat does not answer")


CHURN = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void* one(void* p) { (*(volatile long*)p)++; return p; }
static void* forks(void* p) {
  for (;;) {
    pid_t child = fork(); int status;
    if (child == 0) _exit(3);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 3) puts("FAILED"), exit(1);
    usleep(3000);
  }
}
int main(void) {
  pthread_t t, more[4]; static long n[4];
  pthread_create(&t, 0, forks, 0);
  for (long i = 1;; i++) {
    for (int k = 0; k < 4; k++) pthread_create(&more[k], 0, one, &n[k]);
    for (int k = 0; k < 4; k++) pthread_join(more[k], 0);
    if (i % 300 == 0) { printf("%ld\n", i); fflush(stdout); }
    if (n[3] != i) { puts("FAILED"); exit(1); }
  }
}
"""


def churn():
    """Threads and processes that come and go while Tally does."""
    program = start(compile_c("churn", CHURN, "-pthread"))
    line_of(program)
    for i in range(10):
        said = Attached(program.pid, "churn.tally", f"--duration={i * 25 + 10}ms").end(None)
        report("churn.tally", exact=not said)
    lines = [line_of(program) for _ in range(4)]
    if any(not x or "FAILED" in x for x in lines) or program.poll() is not None:
        complain(f"churn: {lines}, {program.poll()}")


def refusals():
    refused(["profile", "--pid=4194303"], "no such process", 125, ["no process"])
    refused(["profile", "--pid=0"], "zero", 2)
    refused(["profile", "--pid=1", "--", "ls"], "both", 2)
    refused(["profile", "--duration=1s", "--", "ls"], "duration without pid", 2)
    refused(["profile", f"--pid={os.getpid()}", "--duration=1y"], "duration", 2, ["--duration"])
    zombie = subprocess.Popen(["true"])
    time.sleep(0.3)
    refused(["profile", f"--pid={zombie.pid}"], "zombie", 125, ["zombie"])
    zombie.wait()
    if os.path.exists("/proc/2/status"):
        refused(["profile", "--pid=2"], "kernel thread", 125, ["kernel thread"])
    sleeper = start("sleep", "100")
    time.sleep(0.1)
    first = Attached(sleeper.pid, "first.tally")
    refused(["profile", f"--pid={sleeper.pid}"], "traced", 125, ["traced already"])
    refused(["profile", f"--pid={first.tally.pid}"], "tally", 125, ["tally itself"])
    first.end()
    if os.geteuid() == 0:
        other_user = ["setpriv", "--reuid=65534", "--clear-groups", TALLY, "profile"]
        done = subprocess.run([*other_user, "-o", "/dev/null", f"--pid={sleeper.pid}"],
                              capture_output=True, check=False)
        said = done.stderr.decode()
        if done.returncode != 125 or not re.search("belongs to|ermission", said):
            complain(f"another user's process: {done.returncode}, {said}")


def undone():
    """An attach that fails half-way leaves nothing behind."""
    full = ("import os, time\nfiles = []\ntry:\n"
            "  while True: files.append(os.open('/dev/null', 0))\n"
            "except OSError: print('full', flush=True)\n"
            "for i in range(400): time.sleep(0.01)\nprint('end')")
    narrow = ["prlimit", "--as=400000000", "python3", "-c",
              "import time\nprint('up', flush=True)\ntime.sleep(5); print('end')"]
    for name, command, says in (("no memory", narrow, "ulimit"),
                                ("no descriptor", ["prlimit", "--nofile=60", "python3", "-c", full],
                                 "open files")):
        program = start(*command)
        line_of(program)
        before = state(program.pid)
        for _ in range(3):
            refused(["profile", f"--pid={program.pid}", "-o", path("undone.tally")], name, 125,
                    [says])
        compare(name, before, state(program.pid))
        if line_of(program) != "end" or program.wait(10) != 0:
            complain(f"{name}: the program did not go on: {program.returncode}")


# ---- afterwards as fast as before ----------------------------------------------------------------
SPEED = r"""
#include <stdio.h>
#include <time.h>
int main(void) {
  char line[80];
  while (fgets(line, sizeof line, stdin)) {
    volatile unsigned long x = 0; struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long i = 0; i < 50000000; i++) x += i & 3;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    printf("%f\n", b.tv_sec - a.tv_sec + (b.tv_nsec - a.tv_nsec) * 1e-9); fflush(stdout);
  }
}
"""


def speed():
    program = start(compile_c("speed", SPEED))
    before = min(float(ask(program, "x")) for _ in range(5))
    Attached(program.pid, "speed.tally", "--duration=300ms").end(None)
    after = min(float(ask(program, "x")) for _ in range(5))
    if after > before * 1.25:
        complain(f"speed: {before:.3f} s before, {after:.3f} s after")


try:
    for test in (counts, blocked, handlers, processes_of_it, unsupported,
                 other_code_than_the_file, coroutines, let_go_at_once, churn, refusals, undone,
                 speed):
        if len(sys.argv) > 1 and test.__name__ not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        test()
        print(f"{test.__name__}: {time.monotonic() - begun:.1f} s")
finally:
    for child in children:
        if child.poll() is None:
            child.kill()
            child.wait()
finish()
