#!/usr/bin/env python3
"""Servers under Tally, asked by their own load generators: same answers, no failed request, exact.

Each server is started natively and under `tally profile`, given the same requests, and stopped the
way its manual says.  Answers are compared, failed requests counted, and the profile must be
balanced and name no issue.  Requests a second are for information.

usage: servers.py --tally=PATH [--only=redis,nginx,postgres] [--scale=1] [--out=bench/servers.md]
                  [--work=FOLDER]

Exit status 77: none of the servers is installed.
"""
import argparse
import glob
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


class Missing(Exception):
    pass


def tool(name, *places):
    found = shutil.which(name) or next((p for p in sorted(sum(map(glob.glob, places), []))), None)
    if not found:
        raise Missing(name)
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port, server):
    for _ in range(600):
        if server.poll() is not None:
            raise RuntimeError(f"the server ended with {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def ask(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]}: {done.returncode}: {done.stdout} {done.stderr}")
    return done.stdout


class Redis:
    """redis-server, redis-benchmark and a forked save."""

    def __init__(self, folder, scale):
        self.folder, self.scale, self.port = folder, scale, free_port()
        self.command = [tool("redis-server"), "--port", str(self.port), "--dir", str(folder),
                        "--save", "", "--bind", "127.0.0.1"]
        self.client = [tool("redis-cli"), "-p", str(self.port)]

    def load(self):
        out = ask(tool("redis-benchmark"), "-p", str(self.port), "-n", str(int(20000 * self.scale)),
                  "-c", "20", "-q", "-t", "ping,set,get,incr,lpush,lpop,sadd,mset")
        rates = [float(r) for r in re.findall(r": ([0-9.]+) requests per second", out)]
        answers = [ask(*self.client, *words.split()) for words in (
            "flushall", "set a 41", "incr a", "rpush l one two three", "lrange l 0 -1",
            "eval return(redis.call('get','a')) 0", "bgsave", "sort l alpha desc")]
        if len(rates) != 9 or "error" in out.lower():  # ping is measured in two forms
            raise RuntimeError(f"redis-benchmark: {out}")
        time.sleep(1)  # the save
        return answers, sum(rates) / len(rates)

    def stop(self, _):
        subprocess.run([*self.client, "shutdown", "nosave"], capture_output=True, check=False)


class Nginx:
    """nginx with a master, two workers and a log, under wrk and ab."""

    def __init__(self, folder, scale):
        self.folder, self.scale, self.port = folder, scale, free_port()
        os.chmod(folder, 0o755)
        (folder / "index.html").write_text("<html>" + "hello " * 500 + "</html>\n")
        (folder / "nginx.conf").write_text(
            f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/error.log;\n"
            f"{'user root;' if os.geteuid() == 0 else ''}\n"
            "events { worker_connections 256; }\n"
            f"http {{ access_log {folder}/access.log; client_body_temp_path {folder}/b;\n"
            f"proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;\n"
            f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
            f"server {{ listen 127.0.0.1:{self.port}; root {folder}; gzip on; gzip_types *;\n"
            "location /missing { return 404 gone; } } }\n")
        nginx = tool("nginx", "/usr/sbin/nginx")
        self.command = [nginx, "-c", str(folder / "nginx.conf"), "-p", str(folder)]
        self.ab = tool("ab")

    def load(self):
        url = f"http://127.0.0.1:{self.port}"
        answers = [
            ask("curl", "-s", url + "/") if shutil.which("curl") else self.get("/"),
            self.get("/missing"),
        ]
        out = ask(self.ab, "-q", "-n", str(int(4000 * self.scale)), "-c", "16", url + "/")
        failed = int(re.search(r"Failed requests:\s+(\d+)", out).group(1))
        if failed or "Non-2xx" in out:
            raise RuntimeError(f"ab: {failed} failed requests: {out}")
        rate = float(re.search(r"Requests per second:\s+([0-9.]+)", out).group(1))
        if wrk := shutil.which("wrk"):
            out = ask(wrk, "-t1", "-c16", f"-d{max(1, int(3 * self.scale))}s",
                      "-H", "Accept-Encoding: gzip", url + "/")
            if "Socket errors" in out or "Non-2xx" in out:
                raise RuntimeError(f"wrk: {out}")
        return answers, rate

    def get(self, path):
        with socket.create_connection(("127.0.0.1", self.port), 10) as s:
            s.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            data = b""
            while more := s.recv(65536):
                data += more
        return data.split(b"\r\n\r\n", 1)[1].decode()

    def stop(self, _):
        os.kill(int((self.folder / "pid").read_text()), signal.SIGQUIT)


class Postgres:
    """postgres under pgbench; its processes come and go with each connection."""

    def __init__(self, folder, scale):
        self.folder, self.scale, self.port = folder, scale, free_port()
        places = "/usr/lib/postgresql/*/bin/"
        self.bin = {n: tool(n, places + n) for n in ("initdb", "postgres", "pgbench", "psql")}
        self.as_user = []
        if os.geteuid() == 0:  # it refuses to run as root
            user = next((u for u in ("postgres", "nobody") if self.exists(u)), None)
            if not user:
                raise Missing("a user for postgres")
            self.as_user = ["setpriv", "--reuid", user, "--regid", str(pwd.getpwnam(user).pw_gid),
                            "--clear-groups"]
            shutil.chown(folder, user)
        self.data = folder / "data"
        self.start = [self.bin["postgres"], "-D", str(self.data), "-p", str(self.port),
                      "-c", f"unix_socket_directories={folder}", "-c", "fsync=off"]
        self.prepare = [*self.as_user, self.bin["initdb"], "-D", str(self.data), "-A", "trust",
                        "-U", "tester", "--no-sync"]
        self.command = [*self.as_user, *self.start]

    @staticmethod
    def exists(user):
        try:
            return bool(pwd.getpwnam(user))
        except KeyError:
            return False

    def load(self):
        where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "tester"]
        sql = lambda text: ask(self.bin["psql"], *where, "-At", "-c", text, "postgres")
        for _ in range(300):  # it listens before it is ready
            probe = [self.bin["psql"], *where, "-c", "select 1", "postgres"]
            if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
                break
            time.sleep(0.2)
        sql("create table t as select i, i * i as q from generate_series(1, 2000) i")
        answers = [sql("select count(*), sum(q) from t where i % 7 = 3"),
                   sql("select md5(string_agg(q::text, ',' order by i desc)) from t")]
        ask(self.bin["pgbench"], *where, "-q", "-i", "-s", "1", "postgres")
        out = ask(self.bin["pgbench"], *where, "-c", "4", "-t", str(int(100 * self.scale) or 1),
                  "postgres")
        failed = re.search(r"number of failed transactions: (\d+)", out)
        if not failed or failed.group(1) != "0":
            raise RuntimeError(f"pgbench: {out}")
        return answers, float(re.search(r"tps = ([0-9.]+)", out).group(1))

    def stop(self, _):
        pid = int((self.data / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGINT)  # "fast shutdown"


SERVERS = {"redis": Redis, "nginx": Nginx, "postgres": Postgres}


class Bench:
    def __init__(self, options):
        self.options = options
        self.tally = os.path.abspath(options.tally)
        self.work = pathlib.Path(options.work).resolve()

    def serve(self, name, under_tally):
        """One life of a server: answers, requests a second, and the profile (or None)."""
        folder = self.work / (name + ("-tally" if under_tally else "-native"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        os.chmod(folder, 0o777)
        server = SERVERS[name](folder, self.options.scale)
        profile = self.work / (name + ".tally")
        prefix = [self.tally, "profile", "-o", str(profile), "--"] if under_tally else []
        if hasattr(server, "prepare"):
            ask(*([self.tally, "profile", "-o", str(self.work / (name + "-init.tally")), "--"]
                  if under_tally else []), *server.prepare, cwd=folder)
        with open(folder / "server.out", "wb") as out, open(folder / "server.err", "wb") as err:
            process = subprocess.Popen([*prefix, *server.command], stdout=out, stderr=err,
                                       stdin=subprocess.DEVNULL, cwd=folder)
        try:
            wait_for_port(server.port, process)
            answers, rate = server.load()
            server.stop(process)
            status = process.wait(120)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        said = [line for line in (folder / "server.err").read_text(errors="replace").splitlines()
                if line.startswith("tally:")]
        if status != 0:
            raise RuntimeError(f"ended with {status}: {said}")
        return answers, rate, said

    def one(self, name):
        """A line of the table, and what is wrong."""
        native, native_rate, _ = self.serve(name, False)
        answers, rate, said = self.serve(name, True)
        problems = [f"{name}: {line}" for line in said]
        if answers != native:
            problems.append(f"{name}: answers differ: {native} and {answers}")
        profiles = sorted(self.work.glob(name + "*.tally"))
        runs = instructions = 0
        for profile in profiles:
            report = json.loads(ask(self.tally, "report", str(profile), "--format=json"))
            runs += len(report["runs"])
            instructions += int(report["totals"]["instructions"])
            problems += [f"{name}: {i['scope']}: {i['message']}" for i in report["issues"]]
            problems += [f"{name}: run {r['number']} is not balanced"
                         for r in report["runs"] if not r["balanced"]]
            total = sum(thread["instructions"] for thread in report["threads"])
            if total != int(report["totals"]["instructions"]):
                problems.append(f"{name}: threads {total} of {report['totals']['instructions']}")
        line = (f"| {name} | {runs} | {instructions:,} | {native_rate:,.0f} | {rate:,.0f} | "
                f"{native_rate / rate:.1f} | {'exact' if not problems else 'see below'} |")
        return line, problems

    def run(self):
        lines, problems, missing = [], [], []
        for name in self.options.only.split(","):
            try:
                line, wrong = self.one(name)
                lines.append(line)
                problems += wrong
            except Missing as e:
                missing.append(f"{name}: {e} is not installed")
            except (RuntimeError, subprocess.TimeoutExpired) as e:
                problems.append(f"{name}: {e}")
        return lines, problems, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tally", default=str(HERE.parent / "build" / "release" / "tally"))
    parser.add_argument("--only", default=",".join(SERVERS))
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--out")
    parser.add_argument("--work", default=str(HERE / ".work" / "servers"))
    options = parser.parse_args()
    lines, problems, missing = Bench(options).run()
    text = "\n".join([
        "# Servers", "",
        "Made by `bench/servers.py`: same answers as natively, no failed request, all runs",
        "balanced.", "",
        "| server | runs | instructions | requests/s natively | under Tally | times | counts |",
        "|---|---:|---:|---:|---:|---:|---|", *lines, *[f"\n- {p}" for p in problems], ""])
    print(text, *missing, sep="\n")
    if options.out:
        pathlib.Path(options.out).write_text(text)
    if not lines and not problems:
        return 77
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
