#!/usr/bin/env python3
"""New code whose addresses would be alike to other code's in the low 32 bits is placed elsewhere.

Where the program has chosen the place, whole addresses are compared from then on.

The program leaves the kernel no other room for a mapping than one that is alike to its own code,
makes code there and calls it from where a mistaken return would show.
"""
import contextlib
import json
import sqlite3
import subprocess

from refusal import accepted, compile_c, complain, finish, path, profile


def find(value, key):
    """The first value of `key` anywhere in a JSON document."""
    if isinstance(value, dict):
        if key in value:
            return value[key]
        value = list(value.values())
    found = (find(item, key) for item in value) if isinstance(value, list) else ()
    return next((f for f in found if f is not None), None)


PROGRAM = compile_c(
    "alike",
    r"""
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    #define SIZE (8ul << 20)
    #define HOLE (12ul << 20)  // the kernel wants room to align it
    #define STEP (64ul << 20)
    #define RESERVE (72ul << 30)  // farther down nobody looks
    #define ALL (4ul << 30)
    typedef int (*function)(int);
    static volatile function made;
    __attribute__((noinline)) static int back(int i) { return made(i) + 1; }
    static int file = -1;  // or memory without one
    static void* map(unsigned long size, int protection) {
      const int kind = MAP_PRIVATE | MAP_NORESERVE | (file < 0 ? MAP_ANONYMOUS : 0);
      return mmap(NULL, size, protection, kind, file, 0);
    }
    static int alike(const char* p) {
      return (uint32_t)((uintptr_t)&back - (uintptr_t)p) < SIZE;
    }
    int main(int argc, char** argv) {
      const uintptr_t big = (uintptr_t)map(RESERVE, PROT_NONE);
      if (argc > 1) file = open(argv[1], O_RDWR | O_CREAT, 0600);
      if (argc > 1 && ftruncate(file, SIZE) != 0) return 1;
      uintptr_t hole = ((uintptr_t)&back - HOLE / 2) & ~((2ul << 20) - 1);
      const uintptr_t top = big + RESERVE - 2 * ALL;
      hole = top + ((hole - top) & (ALL - 1));
      munmap((void*)hole, HOLE);
      // One lower place, with just the room for it: some file systems want more, to align it, and
      // do not take it for a hint.
      munmap((void*)(hole + HOLE - SIZE - STEP), SIZE);
      char* p;
      int fillers = 0;
      // What lies above the reservation fills up first.
      while ((uintptr_t)(p = map(SIZE, PROT_READ | PROT_WRITE | PROT_EXEC)) > hole + HOLE &&
             !alike(p)) {
        fillers++;
      }
      munmap((void*)big, (uintptr_t)p > big ? (uintptr_t)p - big : RESERVE);
      if ((uintptr_t)p > big) munmap(p + SIZE, big + RESERVE - (uintptr_t)(p + SIZE));
      // lea eax, [rdi + 1]; ret, where `back` has its own code
      char* at = alike(p) ? p + (uint32_t)((uintptr_t)&back - (uintptr_t)p) : p;
      memcpy(at, "\x8d\x47\x01\xc3", 4);
      made = (function)at;
      long sum = 0;
      for (int i = 0; i < 1000; i++) sum += back(i);
      printf("alike %d sum %ld\n", alike(p), sum);
      return 0;
    }
    """,
)

for kind in ([], [path("alike.bin")]):
    moved = 0
    native = subprocess.run([PROGRAM, *kind], capture_output=True, text=True, check=True).stdout
    if native != "alike 1 sum 501500\n":
        complain(f"natively it should have been alike: {native!r}")
    for number in range(3):
        name = f"alike{number}.tally"
        done = accepted(profile(name, PROGRAM, *kind), "a mapping that would be alike")
        said = done.stdout.decode(errors="replace")
        # One start in some hundred has program and loader alike: then nothing needs to be moved.
        if said not in ("alike 0 sum 501500\n", "alike 1 sum 501500\n"):
            complain(f"under Tally it printed {said!r}")
        report = json.loads(accepted(["report", path(name), "--format=json"], "report").stdout)
        if not find(report, "balanced"):
            complain("not balanced")
        moved += said.startswith("alike 0")
    if moved == 0:
        complain("three times it was left where it is alike")



def facts(name):
    """What the profile says of its only run."""
    with contextlib.closing(sqlite3.connect(path(name))) as db:
        return dict(db.execute("select name, value from facts"))


def chosen(name, expected, *command):
    """Runs it twice: all is compared whole from when it must be, the next time from the start."""
    for number in range(2):
        profile_name = f"{name}.{number}.tally"
        done = accepted(profile(profile_name, *command), name)
        if done.stdout.decode(errors="replace") != expected:
            complain(f"{name}: under Tally it printed {done.stdout!r}")
        report = json.loads(accepted(["report", path(profile_name), "--format=json"], name).stdout)
        if not find(report, "balanced"):
            complain(f"{name}: not balanced")
        switched = facts(profile_name).get("addresses_alike") == "1"
        # One start in some hundred compares whole addresses anyhow.
        if switched and number == 1:
            complain(f"{name}: the second run did not know")
        came_to_it.append(switched)


came_to_it = []

# What the program wants at an address of its choice stays there.  Both pieces are reached through
# one site, which would take the second for the first: the same low half.
CHOSEN = compile_c(
    "chosen",
    r"""
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    static int (*make(unsigned long at, int from, int to, char plus))(int) {
      char* p = mmap((void*)at, 4096, from, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
      memcpy(p, "\x8d\x47", 2);
      p[2] = plus;
      p[3] = '\xc3';
      if (from != to) mprotect(p, 4096, to);
      return (int (*)(int))p;
    }
    int main(int argc, char** argv) {
      const int rw = PROT_READ | PROT_WRITE, all = rw | PROT_EXEC, rx = PROT_READ | PROT_EXEC;
      int (*made[2])(int);
      made[0] = make(0x213400000000, rw, rx, 1);
      made[1] = argc > 1 ? make(0x323400000000, all, all, 2) : make(0x323400000000, rw, rx, 2);
      int sum = 0;
      for (int i = 0; i < 100; i++) sum += made[i & 1](0);
      printf("%d\n", sum);
    }
    """,
)
for more in ([], ["mapped"]):
    native = subprocess.run([CHOSEN, *more], capture_output=True, text=True, check=True).stdout
    if native != "150\n":
        complain(f"chosen addresses: natively {native!r}")
    chosen(f"chosen{len(more)}", "150\n", CHOSEN, *more)

# A hint is no order: compilers at run time reserve room near the program, or below 2 GB, with no
# permission, and make all of it executable afterwards.
HINTED = compile_c(
    "hinted",
    r"""
    #define _GNU_SOURCE
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #define SIZE (64ul << 20)
    #define OTHER 0x213400000000ul
    typedef int (*function)(int);
    static char* make(char* p, char plus) {
      memcpy(p, "\x8d\x47", 2);
      p[2] = plus;
      p[3] = '\xc3';
      return p;
    }
    int main(int argc, char** argv) {
      const int all = PROT_READ | PROT_WRITE | PROT_EXEC, kind = MAP_PRIVATE | MAP_ANONYMOUS;
      const int low = argc > 1 ? MAP_32BIT : 0;
      // Near the program, or below 2 GB, where the kernel chooses within 32 MB by chance.
      const uintptr_t near = ((uintptr_t)&main + (1ul << 30)) & ~(SIZE - 1);
      char* p = mmap(low ? NULL : (void*)near, SIZE, PROT_NONE, kind | MAP_NORESERVE | low, -1, 0);
      munmap(p, SIZE);
      const uintptr_t there = low ? (uintptr_t)p + SIZE / 2 : near;
      const uintptr_t alike = OTHER | (uint32_t)there;
      char* first = make(mmap((void*)alike, 4096, all, kind | MAP_FIXED, -1, 0), 1);
      p = mmap(low ? NULL : (void*)near, SIZE, PROT_NONE, kind | MAP_NORESERVE | low, -1, 0);
      mprotect(p, SIZE, all);
      uint32_t away = (uint32_t)((uintptr_t)first - (uintptr_t)p);
      function made[2] = {(function)first, (function)make(p + (away < SIZE ? away : 0), 2)};
      int sum = 0;
      for (int i = 0; i < 100; i++) sum += made[i & 1](0);
      // Far from any file's code it is data: Go's heap.
      void* far = (void*)(0xc000000000 | (uint32_t)alike);
      const int kept = mmap(far, SIZE, PROT_NONE, kind | MAP_NORESERVE, -1, 0) == far;
      const int below = (uintptr_t)p + SIZE <= 1ul << 31;
      printf("alike %d below 2 GB %d kept %d sum %d\n", away < SIZE, below, kept, sum);
    }
    """,
)
for more in ([], ["low"]):
    native = subprocess.run([HINTED, *more], capture_output=True, text=True, check=True).stdout
    if native != f"alike 1 below 2 GB {len(more)} kept 1 sum 150\n":
        complain(f"hinted addresses: natively {native!r}")
    done = accepted(profile("hinted.tally", HINTED, *more), "a hint that would be alike")
    said = done.stdout.decode(errors="replace")
    if said != f"alike 0 below 2 GB {len(more)} kept 1 sum 150\n":
        complain(f"hinted addresses: under Tally it printed {said!r}")

# An executable stack grows without a call that Tally could look at: where it may grow to counts as
# code from the beginning.  One site calls code made at a chosen address, then code deep in the
# stack whose address has the same low half.
STACK = compile_c(
    "stack",
    r"""
    #include <alloca.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #define DEPTH (4ul << 20)
    typedef int (*function)(int);
    int main(void) {
      char* deep = alloca(DEPTH + 8192);
      deep = (char*)(((uintptr_t)deep + 4095) & ~4095ul);
      void* at = (void*)(0x213400000000 | (uint32_t)(uintptr_t)deep);
      char* made = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0);
      memcpy(made, "\x8d\x47\x01\xc3", 4);
      if (mprotect(made, 4096, PROT_READ | PROT_EXEC) != 0) return 2;
      memcpy(deep, "\x8d\x47\x02\xc3", 4);
      function both[2] = {(function)made, (function)deep};
      int sum = 0;
      for (volatile int i = 0; i < 100; i++) sum += both[i >= 50](0);
      printf("%d\n", sum);
    }
    """,
    "-z",
    "execstack",
)
native = subprocess.run([STACK], capture_output=True, text=True, check=True).stdout
if native != "150\n":
    complain(f"code deep in the stack: natively {native!r}")
chosen("stack", "150\n", STACK)

# A thread calls and returns all the time while another one copies the code that it is in to where
# it is alike, which a child and a thread then execute as well.
RUNNING = compile_c(
    "running",
    r"""
    #include <pthread.h>
    #include <stdatomic.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    typedef long (*function)(long);
    __attribute__((noinline)) static int is_copy(void) {
      uintptr_t here;
      __asm__ volatile("lea 0(%%rip), %0" : "=r"(here));
      return here >> 32 == 0x2134;
    }
    static long f1(long x) { return x + 3 + is_copy(); }
    static long f2(long x) { return x ^ (9 + is_copy()); }
    static const function both[2] = {f1, f2};
    __attribute__((noinline)) static long call(const function* of, long apart, long i) {
      return ((function)((uintptr_t)of[i & 1] + (i & 2 ? apart : 0)))(i) + is_copy();
    }
    __attribute__((noinline)) static long work(long apart) {
      long sum = 0;
      for (long i = 0; i < 2000; i++) sum += call(both, apart, i);
      return sum;
    }
    static atomic_int done;
    static atomic_long rounds;
    static void* run(void* unused) {
      long wrong = 0;
      const long right = work(0);
      while (!done) wrong += work(0) != right, rounds++;
      return (void*)wrong;
    }
    extern char __executable_start[], end[];
    int main(void) {
      pthread_t thread;
      pthread_create(&thread, NULL, run, NULL);
      while (rounds < 20) {}
      const uintptr_t begin = (uintptr_t)__executable_start & ~4095ul;
      const uintptr_t size = (((uintptr_t)end + 4095) & ~4095ul) - begin;
      char* there = (char*)(0x213400000000 | (uint32_t)begin);
      char* copy = mmap(there, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
      memcpy(copy, (char*)begin, size);
      if (copy != there || mprotect(copy, size, PROT_READ | PROT_EXEC) != 0) return 1;
      const long apart = copy - (char*)begin;
      const long sum = work(apart) * 3 + ((function)((uintptr_t)work + apart))(apart);
      const long until = rounds + 20;
      while (rounds < until) {}
      done = 1;
      void* wrong;
      pthread_join(thread, &wrong);
      int status = 1;
      if (fork() == 0) {
        // The third at addresses alike.
        char* page = mmap((void*)(0x313400000000 | (uint32_t)(uintptr_t)f1 & ~4095u), 8192,
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        memcpy(page, (char*)((uintptr_t)f1 & ~4095ul), 8192);
        mprotect(page, 8192, PROT_READ | PROT_EXEC);
        const function third = (function)(page + ((uintptr_t)f1 & 4095));
        long all = 0;
        for (long i = 0; i < 100; i++) all += i & 1 ? third(i) : f1(i);
        const long again = work(apart) * 3 + ((function)((uintptr_t)work + apart))(apart);
        _exit(all == 4950 + 300 && again == sum ? 7 : 8);
      }
      wait(&status);
      printf("%ld %ld %d\n", (long)wrong, sum, WEXITSTATUS(status));
      return 0;
    }
    """,
    "-O2",
    "-pthread",
)
native = subprocess.run([RUNNING], capture_output=True, text=True, check=True).stdout
if not native.startswith("0 ") or not native.endswith(" 7\n"):
    complain(f"code alike to what runs: natively {native!r}")
chosen("running", native, RUNNING)
# A run that is told so, and one whose low halves may be alike from the start, compare all.
if came_to_it.count(True) < 3:
    complain(f"hardly any run met what is alike: {came_to_it}")
finish()
