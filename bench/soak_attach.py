#!/usr/bin/env python3
"""Attaches to a running process and lets it go again, many times, under load.

    python3 bench/soak_attach.py --tally build/release/tally --times 100 --server redis

Starts the server and a client that never stops asking and counts requests that fail.  After each
detach: the process has the mappings, descriptors and threads it had, no tracer, and the profile
balances.  Prints one line for every tenth round, and a summary; exit status 1 when anything failed.
With --pid=N it takes a process of yours instead, and looks at what it can.
"""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

WORK = tempfile.mkdtemp(prefix="tally-soak-")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Client(threading.Thread):
    """Asks without a pause; each answer is compared with what is expected."""

    def __init__(self, connect, ask):
        super().__init__(daemon=True)
        self.connect, self.ask = connect, ask
        self.done = self.failed = 0
        self.slowest = 0.0
        self.first_failure = ""
        self.stopping = False

    def run(self):
        connection = None
        while not self.stopping:
            begun = time.monotonic()
            try:
                connection = connection or self.connect()
                self.ask(connection, self.done)
            except (OSError, AssertionError) as error:
                self.failed += 1
                self.first_failure = self.first_failure or repr(error)
                connection = None
                time.sleep(0.01)
            self.done += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)


def exchange(connection, request, expected):
    connection.sendall(request)
    got = b""
    while len(got) < len(expected):
        part = connection.recv(65536)
        assert part, "the connection was closed"
        got += part
    assert got == expected, f"asked {request!r}, got {got[:80]!r}"


def redis():
    port = free_port()
    server = subprocess.Popen(["redis-server", "--port", str(port), "--save", "", "--dir", WORK],
                              stdout=subprocess.DEVNULL)

    def ask(c, number):
        value = f"value{number}"
        key = f"{c.getsockname()[1]:05}"  # each client its own
        set_it = f"*3\r\n$3\r\nSET\r\n$5\r\n{key}\r\n${len(value)}\r\n{value}\r\n"
        exchange(c, set_it.encode(), b"+OK\r\n")
        get_it = f"*2\r\n$3\r\nGET\r\n$5\r\n{key}\r\n"
        exchange(c, get_it.encode(), f"${len(value)}\r\n{value}\r\n".encode())
        if number % 50 == 0:
            exchange(c, b"PING\r\n", b"+PONG\r\n")

    return server, port, ask


def http_ask(port, path, expected):
    def ask(c, _):
        request = f"GET {path} HTTP/1.1\r\nHost: x:{port}\r\n\r\n".encode()
        c.sendall(request)
        got = b""
        while True:
            head, separator, body = got.partition(b"\r\n\r\n")
            if separator:
                length = int(re.search(rb"(?i)content-length: (\d+)", head).group(1))
                if len(body) >= length:
                    break
            part = c.recv(65536)
            assert part, "the connection was closed"
            got += part
        assert head.startswith(b"HTTP/1.1 200") and body == expected, got[:100]

    return ask


def nginx():
    port = free_port()
    with open(f"{WORK}/a.txt", "w", encoding="ascii") as f:
        f.write("x" * 2000)
    with open(f"{WORK}/nginx.conf", "w", encoding="ascii") as f:
        f.write(f"daemon off; master_process off; pid {WORK}/pid; error_log {WORK}/error;\n"
                f"events {{}}\nhttp {{ access_log off; keepalive_requests 1000000000;\n"
                f"server {{ listen 127.0.0.1:{port}; root {WORK}; }} }}\n")
    server = subprocess.Popen(["nginx", "-p", WORK, "-c", f"{WORK}/nginx.conf"])
    return server, port, http_ask(port, "/a.txt", b"x" * 2000)


PYTHON = """
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = b"hello " * 100
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *a): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


def python():
    port = free_port()
    server = subprocess.Popen([sys.executable, "-c", PYTHON, str(port)])
    return server, port, http_ask(port, "/", b"hello " * 100)


SERVERS = {"redis": redis, "nginx": nginx, "python": python}


def state(pid):
    with open(f"/proc/{pid}/maps", encoding="utf-8") as f:
        maps = f.read()
    with open(f"/proc/{pid}/status", encoding="utf-8") as f:
        tracer = re.search(r"TracerPid:\s*(\d+)", f.read()).group(1)
    return maps, tracer


def executable_parts(maps):
    return [line for line in maps.splitlines() if line.split()[1][2] == "x"]


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--tally", default="build/release/tally")
    options.add_argument("--times", type=int, default=100)
    options.add_argument("--server", choices=SERVERS, default="redis")
    options.add_argument("--pid", type=int)
    options.add_argument("--clients", type=int, default=2)
    options.add_argument("--duration", default="100ms")
    o = options.parse_args()
    server, clients = None, []
    pid = o.pid
    if not pid:
        server, port, ask = SERVERS[o.server]()
        pid = server.pid
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        clients = [Client(lambda: socket.create_connection(("127.0.0.1", port)), ask)
                   for _ in range(o.clients)]
        for c in clients:
            c.start()
        time.sleep(0.5)
    faults, inexact, instructions, begun = [], 0, [], time.monotonic()
    before = executable_parts(state(pid)[0])
    for i in range(1, o.times + 1):
        file = f"{WORK}/p.tally"
        done = subprocess.run([o.tally, "profile", f"--pid={pid}", f"--duration={o.duration}", "-o",
                               file], capture_output=True, timeout=120, check=False)
        if done.returncode != 0:
            faults.append(f"round {i}: tally ended with {done.returncode}: {done.stderr[-300:]}")
            if server and server.poll() is not None:
                break
            continue
        maps, tracer = state(pid)
        if tracer != "0":
            faults.append(f"round {i}: traced by {tracer}")
        if executable_parts(maps) != before or "memfd:tally" in maps:
            faults.append(f"round {i}: other mappings than before")
        report = json.loads(subprocess.run([o.tally, "report", "--format=json", file], check=True,
                                           capture_output=True).stdout)
        issues = [x for r in report["runs"] for x in [r["issues"]] if x]
        if not report["flow"]["balanced"] and not issues:
            faults.append(f"round {i}: not balanced, and nobody says so")
        inexact += 1 if issues else 0
        if done.stderr and inexact <= 3:
            print(done.stderr.decode()[:400].rstrip(), flush=True)
        instructions.append(report.get("instructions", 0))
        if i % 10 == 0:
            print(f"{i} rounds, {sum(c.done for c in clients)} requests, "
                  f"{sum(c.failed for c in clients)} failed, {len(faults)} faults", flush=True)
    seconds = time.monotonic() - begun
    for c in clients:
        c.stopping = True
    for c in clients:
        c.join(20)
    if server:
        if server.poll() is not None:
            faults.append(f"the server ended with {server.returncode}")
        server.terminate()
        server.wait(20)
    failed = sum(c.failed for c in clients)
    for c in clients:
        if c.first_failure:
            faults.append(c.first_failure)
    print(f"{o.server if server else pid}: {o.times} times in {seconds:.0f} s; "
          f"{sum(c.done for c in clients)} requests, {failed} failed, slowest "
          f"{max([c.slowest for c in clients], default=0) * 1000:.0f} ms; "
          f"{inexact} profiles name something that is not exact; {len(faults)} faults")
    for fault in faults[:10]:
        print("  " + fault)
    return 1 if faults or failed else 0


if __name__ == "__main__":
    sys.exit(main())
