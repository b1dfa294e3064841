#!/usr/bin/env python3
"""The facts about shared memory say what was touched: of tables, code caches and threads."""
import json
import resource

from refusal import accepted, compile_c, complain, finish, path

PAGE = resource.getpagesize()
PROGRAM = compile_c(
    "threads_touch",
    r"""
    #include <pthread.h>
    #include <stdlib.h>
    static pthread_barrier_t together;
    static void* work(void* data) {
      pthread_barrier_wait(&together);
      return data;
    }
    int main(int argc, char** argv) {
      const int count = atoi(argv[1]);
      pthread_t threads[64];
      pthread_barrier_init(&together, 0, count + 1);
      for (int i = 0; i < count; i++) pthread_create(&threads[i], 0, work, 0);
      pthread_barrier_wait(&together);
      for (int i = 0; i < count; i++) pthread_join(threads[i], 0);
      return argc > 2;
    }
    """, "-pthread",
)


def facts(name, threads, *options):
    accepted(["profile", "-o", path(name), *options, "--", PROGRAM, str(threads)], name)
    dump = json.loads(accepted(["dump", "profile", path(name), "--format=json"], "dump").stdout)
    found = {fact["name"]: fact["value"] for fact in dump["run"]}
    return {name: int(found[name]) for name in (
        "memory_tables_bytes", "memory_code_bytes", "memory_threads_bytes", "code_cache_bytes",
        "counters", "code_caches")}


def judge(what, f, threads):
    for name in ("memory_tables_bytes", "memory_code_bytes", "memory_threads_bytes"):
        if f[name] == 0 or f[name] % PAGE:
            complain(f"{what}: {name} {f[name]}: no pages")
    # A gateway in each cache, and two halves that end within a page.
    if not (f["code_cache_bytes"] <= f["memory_code_bytes"]
            <= f["code_cache_bytes"] + f["code_caches"] * 8 * PAGE):
        complain(f"{what}: {f['memory_code_bytes']} bytes of code caches that hold "
                 f"{f['code_cache_bytes']}")
    # In a file of kept counters more room is reserved than is needed.
    most = (threads + 1) * (f["counters"] * 8 + 16 * PAGE)
    if not (threads + 1) * PAGE < f["memory_threads_bytes"] <= (most if what != "kept" else 1e9):
        complain(f"{what}: {f['memory_threads_bytes']} bytes of {threads + 1} threads")


one = facts("one.tally", 1)
many = facts("many.tally", 40)
kept = facts("kept.tally", 40, "--keep-counters=" + path("kept"))
judge("one thread", one, 1)
judge("40 threads", many, 40)
judge("kept", kept, 40)
if one["memory_threads_bytes"] + 30 * PAGE > many["memory_threads_bytes"]:
    complain(f"40 threads touch no more than one: {one} {many}")
finish()
