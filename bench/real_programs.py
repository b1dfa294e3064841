"""The real programs of real.py: how each is prepared and run, and what of its output may vary.

Everything is made on the spot: no input is fetched, but node's packages (pinned, by npm, once).
`FOLDER` in an argument is the folder the program runs in.
"""

import dataclasses
import glob
import os
import pathlib
import shutil
import subprocess
import typing

import programs as benchmark

ORDINARY_USER = "nobody"
NPM = ["acorn@8.11.3", "esprima@4.0.1", "express@4.18.2", "mocha@10.2.0", "supertest@6.3.3",
       "qs@6.11.0", "tape@5.6.1", "object-inspect@1.12.2", "safer-buffer@2.1.2",
       "iconv-lite@0.6.3", "mkdirp@0.5.6", "has-symbols@1.0.3"]


@dataclasses.dataclass(frozen=True)
class Real:
    name: str
    argv: list
    environment: dict = dataclasses.field(default_factory=dict)
    prepare: typing.Callable = None     # fills the folder the program runs in
    outputs: tuple = ()                 # files in that folder that are compared
    volatile: tuple = ()                # patterns (re.M) that are left out of what is compared
    compare_stderr: bool = True
    as_user: bool = False               # as an ordinary user, Tally too
    issues: tuple = ()                  # what docs/exactness.md foretells of it
    other_end: bool = False             # ... among it that it ends in another way
    timeout_s: float = 60               # natively; under Tally 20 times that
    missing: str = None                 # what of it is not installed


# A process has one tracer.
TRACES = "^ptrace: "
# Stacks that are left and never returned to; see docs/exactness.md.
STACKS = ("^stacks: ", "^threads: ", "flow is not conserved", "^back-trace: ")


def find(name, *places):
    found = benchmark.find(name, *places)
    if not os.path.exists(found):
        found = next(iter(sorted(sum(map(glob.glob, places), []))), None)
    return found


def write(name, text):
    def prepare(folder):
        for path, content in (name if isinstance(name, dict) else {name: text}).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
    return prepare


RUST = """use std::collections::HashMap;
use std::fmt::Display;
fn show<T: Display>(t: &[T]) -> String { t.iter().map(|x| format!("<{x}>")).collect() }
fn main() {
    let mut words: HashMap<String, usize> = HashMap::new();
    for w in "a rose is a rose is a rose".split(' ') { *words.entry(w.into()).or_default() += 1; }
    let mut all: Vec<_> = words.into_iter().collect();
    all.sort();
    println!("{:?} {}", all, show(&[1.5, 2.5]));
}
"""
GO = """package main

import (
	"fmt"
	"sort"
	"strings"
)

func main() {
	count := map[string]int{}
	for _, w := range strings.Fields("a rose is a rose is a rose") {
		count[w]++
	}
	words := []string{}
	for w := range count {
		words = append(words, w)
	}
	sort.Strings(words)
	fmt.Println(words, count)
}
"""
GO_SERVER = """package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

func main() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s", r.URL.Path)
	}))
	var wait sync.WaitGroup
	var lock sync.Mutex
	bytes := 0
	for c := 0; c < 8; c++ {
		wait.Add(1)
		go func(c int) {
			defer wait.Done()
			for i := 0; i < 50; i++ {
				answer, err := http.Get(fmt.Sprintf("%s/%d/%02d", server.URL, c, i))
				if err != nil {
					panic(err)
				}
				body, _ := io.ReadAll(answer.Body)
				answer.Body.Close()
				lock.Lock()
				bytes += len(body)
				lock.Unlock()
			}
		}(c)
	}
	wait.Wait()
	server.Close()
	fmt.Println(bytes)
}
"""
GO_ENVIRONMENT = {"GOFLAGS": "-mod=mod -trimpath -buildvcs=false", "GO111MODULE": "on",
                  "GOPROXY": "off"}
HASKELL = """module Main where
import qualified Data.Map as M
main :: IO ()
main = print (M.toList (M.fromListWith (+) [(w, 1 :: Int) | w <- words "a rose is a rose"]))
"""
OCAML = """module M = Map.Make (String)
let () =
  String.split_on_char ' ' "a rose is a rose is a rose"
  |> List.fold_left (fun m w -> M.update w (fun n -> Some (1 + Option.value n ~default:0)) m)
       M.empty
  |> M.iter (Printf.printf "%s %d\\n")
"""
JAVA = """import java.util.*;
import java.util.stream.*;
public class Roses {
  sealed interface Shape permits Circle, Square {}
  record Circle(double r) implements Shape {}
  record Square(double side) implements Shape {}
  public static void main(String[] a) {
    Map<String, Long> count = Stream.of("a rose is a rose is a rose".split(" "))
        .collect(Collectors.groupingBy(w -> w, TreeMap::new, Collectors.counting()));
    System.out.println(count + " " + new Circle(2) + new Square(3));
  }
}
"""
C = """#include <stdio.h>
#include <stdlib.h>
static int by_value(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
int main(void) {
  int numbers[5000];
  unsigned x = 1;
  for (int i = 0; i < 5000; i++) numbers[i] = (int)((x = x * 1103515245u + 12345u) >> 8);
  qsort(numbers, 5000, sizeof *numbers, by_value);
  printf("%d %d %f\\n", numbers[0], numbers[4999], numbers[2500] / 7.0);
  return 0;
}
"""
PAGE = """<!doctype html><html><head><style>body { background: linear-gradient(#fde, #def); }
.b { border-radius: 9px; box-shadow: 2px 2px 5px #345; padding: 8px; width: 40%; }</style></head>
<body><h1>Tally</h1><div class=b id=x>?</div><canvas id=c width=200 height=100></canvas><script>
let s = 0; for (let i = 0; i < 300000; i++) s = (s * 31 + i) % 1000003;
document.getElementById('x').textContent = 'sum ' + s;
const g = document.getElementById('c').getContext('2d');
for (let i = 0; i < 20; i++) {
  g.fillStyle = `hsl(${i * 18} 80% 50%)`; g.fillRect(i * 10, 0, 9, 90);
}
</script></body></html>
"""
EXPRESS = """const assert = require('assert');
const express = require('express');
const request = require('supertest');
function app() {
  const a = express();
  a.use(express.json());
  a.get('/user/:id', (q, s) => s.json({ id: q.params.id, q: q.query }));
  a.post('/sum', (q, s) => s.json({ sum: q.body.numbers.reduce((x, y) => x + y, 0) }));
  a.get('/throws', () => { throw Object.assign(new Error('thrown'), { status: 418 }); });
  a.use((e, q, s, next) => s.status(e.status || 500).send(e.message));
  return a;
}
describe('express', function () {
  this.timeout(60000);
  for (let i = 0; i < 25; i++) {
    it('routes ' + i, () => request(app()).get(`/user/${i}?a[b]=c`)
      .expect(200, { id: String(i), q: { a: { b: 'c' } } }));
    it('parses ' + i, () => request(app()).post('/sum').send({ numbers: [i, 2, 3] })
      .expect(200, { sum: i + 5 }));
    it('catches ' + i, () => request(app()).get('/throws').expect(418, 'thrown'));
  }
});
"""
PARSERS = """const fs = require('fs');
const crypto = require('crypto');
const acorn = require('acorn');
const esprima = require('esprima');
const files = ['acorn/dist/acorn.js', 'esprima/dist/esprima.js', 'express/lib/router/index.js'];
for (const file of files) {
  const text = fs.readFileSync(require.resolve(file.split('/')[0]).replace(
    /node_modules.*/, 'node_modules/' + file), 'utf8');
  for (let i = 0; i < 8; i++) {
    for (const tree of [acorn.parse(text, { ecmaVersion: 5 }), esprima.parseScript(text)]) {
      const json = JSON.stringify(tree);
      const digest = crypto.createHash('md5').update(json).digest('hex');
      if (i === 7) console.log(file, json.length, digest);
    }
  }
}
"""
PHP = """<?php
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
class Node { public $next; function __construct(public int $v) {} }
$list = null;
for ($i = 0; $i < 20000; $i++) { $n = new Node($i); $n->next = $list; $list = $n; }
$sum = 0;
for ($n = $list; $n; $n = $n->next) $sum += $n->v;
preg_match_all('/\\b(\\w)\\w*\\1\\b/', str_repeat('anna went to a level of kayak ', 500), $m);
try { (function () { throw new Exception('thrown'); })(); }
catch (Exception $e) { echo $e->getMessage(); }
echo fib(23), " $sum ", count($m[0]), "\\n";
"""
CSHARP = """using System;
using System.Collections.Generic;
using System.Linq;
using System.Threading;
class Roses {
  static int Fib(int n) { return n < 2 ? n : Fib(n - 1) + Fib(n - 2); }
  static void Main() {
    int caught = 0;
    for (int i = 0; i < 200; i++) {
      try { object o = null; if (i % 2 == 0) o.ToString(); else throw new Exception("x"); }
      catch (NullReferenceException) { caught++; } catch (Exception) { caught += 1000; }
    }
    int sum = 0;
    var threads = Enumerable.Range(20, 3).Select(n => new Thread(() =>
      Interlocked.Add(ref sum, Fib(n)))).ToList();
    threads.ForEach(t => t.Start());
    threads.ForEach(t => t.Join());
    GC.Collect();
    Console.WriteLine(caught + " " + sum);
  }
}
"""
ERLANG = """Parent = self(),
Fib = fun F(N) when N < 2 -> N; F(N) -> F(N - 1) + F(N - 2) end,
[spawn(fun() -> Parent ! {N, Fib(N)} end) || N <- lists:seq(1, 18)],
R = lists:sort([receive X -> X end || _ <- lists:seq(1, 18)]),
C = (catch error(thrown)),
io:format("~p ~p~n", [R, element(1, C)]), halt(0).
"""


def npm_folder():
    """The pinned packages, fetched once; None where that is not possible."""
    folder = pathlib.Path(__file__).resolve().parent / ".work" / "npm"
    if not (folder / "node_modules" / "acorn").exists():
        npm = shutil.which("npm")
        if not npm:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([npm, "install", "--no-audit", "--no-fund", f"--prefix={folder}",
                               *NPM], capture_output=True, check=False, timeout=300)
        if done.returncode != 0:
            return None
    return folder / "node_modules"


def toolchain(name):
    """rustup's wrappers only find the real one, by way of the network if need be."""
    rustup = shutil.which("rustup")
    if rustup:
        done = subprocess.run([rustup, "which", name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return shutil.which(name)


def media():
    source = ["-f", "lavfi", "-i", "testsrc=size=320x240:rate=25:duration=2",
              "-f", "lavfi", "-i", "sine=frequency=440:duration=2"]
    ffmpeg = find("ffmpeg")
    chromium = find("chromium")
    page = write("page.html", PAGE)
    shot = ["--headless", "--disable-gpu", "--screenshot=FOLDER/shot.png", "--hide-scrollbars",
            "--window-size=640,480", "--user-data-dir=FOLDER/user", "file://FOLDER/page.html"]
    return [
        Real("ffmpeg", [ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", *source, "-c:v",
                        "libx264", "-threads", "2", "-c:a", "aac", "-f", "framemd5", "-"],
             missing=None if ffmpeg else "ffmpeg"),
        Real("chromium", [chromium, "--no-sandbox", *shot], prepare=page, outputs=("shot.png",),
             compare_stderr=False, missing=None if chromium else "chromium"),
        Real("chromium sandboxed", [chromium, *shot], prepare=page, outputs=("shot.png",),
             compare_stderr=False, as_user=True, missing=None if chromium else "chromium"),
    ]


def engines():
    stockfish = find("stockfish")
    times = (rb"^(Total time|Nodes/second).*\n", rb"^info .*\n", rb"^Stockfish .*\n")
    return [
        Real("stockfish", [stockfish, "bench", "16", "1", "9"], volatile=times,
             missing=None if stockfish else "stockfish"),
        # Two threads share what they know when they happen to: the nodes vary.
        Real("stockfish 2 threads", [stockfish, "bench", "16", "2", "8"],
             volatile=(*times, rb"^Nodes searched.*\n", rb"^bestmove.*\n"),
             missing=None if stockfish else "stockfish"),
    ]


def compilers():
    cargo, rustc = toolchain("cargo"), toolchain("rustc")
    go, ghc, ocamlopt, javac = (find(n) for n in ("go", "ghc", "ocamlopt", "javac"))
    return [
        Real("rustc", [rustc, "-O", "-C", "codegen-units=2", "roses.rs"],
             prepare=write("roses.rs", RUST), outputs=("roses",),
             missing=None if rustc else "rustc"),
        Real("cargo build", [cargo, "build", "--offline", "--release"],
             {"RUSTC": rustc or ""},
             prepare=write({"Cargo.toml": '[package]\nname = "roses"\nversion = "0.1.0"\n'
                                          'edition = "2021"\n', "src/main.rs": RUST,
                            "src/lib.rs": "pub fn f() {}\n"}, None),
             outputs=("target/release/roses",), volatile=(rb" in [0-9.]+m?s",),
             missing=None if cargo and rustc else "cargo"),
        Real("go build", [go, "build", "-o", "roses", "."],
             {**GO_ENVIRONMENT, "GOCACHE": "FOLDER/cache"}, prepare=warm_go, outputs=("roses",),
             issues=("^back-trace: .*/go ",),  # ends with threads on stacks of goroutines
             missing=None if go else "go"),
        Real("ghc", [ghc, "-O", "-v0", "Roses.hs", "-o", "roses"],
             prepare=write("Roses.hs", HASKELL), outputs=("Roses.hi",),
             missing=None if ghc else "ghc"),
        Real("ocamlopt", [ocamlopt, "-O3", "roses.ml", "-o", "roses"],
             prepare=write("roses.ml", OCAML), outputs=("roses.o", "roses.cmx"),
             missing=None if ocamlopt else "ocamlopt"),
        Real("javac", [javac, "Roses.java"], prepare=write("Roses.java", JAVA),
             outputs=("Roses.class", "Roses$Circle.class"),
             missing=None if javac else "javac"),
    ]


def warm_go(folder):
    """What the program imports is compiled already; it is not itself."""
    store = folder.parent / "go-cache"
    if not store.exists():
        warm = folder / "warm"
        write({"warm/go.mod": "module warm\n\ngo 1.19\n",
               "warm/warm.go": GO.replace('"a rose', '"another rose')}, None)(folder)
        subprocess.run([find("go"), "build", "-o", "/dev/null", "."], cwd=warm, check=True,
                       capture_output=True,
                       env={**os.environ, **GO_ENVIRONMENT, "GOCACHE": str(store)})
        shutil.rmtree(warm)
    shutil.copytree(store, folder / "cache")
    write({"go.mod": "module roses\n\ngo 1.19\n", "roses.go": GO}, None)(folder)


def scripts(with_node):
    node, php, mono, mcs, erl = (find(n) for n in ("node", "php", "mono", "mcs", "erl"))
    npm = npm_folder() if node and with_node else None
    where = {"NODE_PATH": str(npm)}
    absent = None if npm else "node, or packages of npm,"

    def compile_csharp(folder):
        (folder / "roses.cs").write_text(CSHARP)
        subprocess.run([mcs, "roses.cs"], cwd=folder, check=True, capture_output=True)

    return [
        Real("node parsers", [node, "parsers.js"], where, prepare=write("parsers.js", PARSERS),
             missing=absent),
        Real("node express", [node, f"{npm}/mocha/bin/_mocha", "--reporter=tap", "test.js"], where,
             prepare=write("test.js", EXPRESS), missing=absent),
        Real("node qs tests", [node, f"{npm}/qs/test/parse.js"], where, missing=absent),
        Real("php jit", [php, "-d", "opcache.enable_cli=1", "-d", "opcache.jit_buffer_size=32M",
                         "-d", "opcache.jit=tracing", "roses.php"],
             prepare=write("roses.php", PHP), missing=None if php else "php"),
        Real("mono", [mono, "roses.exe"], prepare=compile_csharp, issues=STACKS,
             missing=None if mono and mcs else "mono, mono-mcs"),
        Real("erlang", [erl, "-noshell", "-eval", ERLANG], issues=STACKS,
             missing=None if erl else "erl"),
    ]


def machines():
    musl, busybox, qemu, go = (find(n) for n in ("musl-gcc", "busybox", "qemu-system-x86_64", "go"))
    gdb, strace, valgrind = (find(n) for n in ("gdb", "strace", "valgrind"))

    def compile_with(compiler, *flags):
        def prepare(folder):
            (folder / "sort.c").write_text(C)
            subprocess.run([compiler, "-O2", *flags, "-o", "sort", "sort.c"], cwd=folder,
                           check=True, capture_output=True)
        return prepare

    def compile_go(folder):
        (folder / "server.go").write_text(GO_SERVER)
        subprocess.run([go, "build", "-o", "server", "server.go"], cwd=folder, check=True,
                       capture_output=True,
                       env={**os.environ, "GOCACHE": str(folder.parent / "go-cache-server")})

    script = "for i in 1 2 3 4 5 6 7 8; do ls / | sort -r | sed s/[aeiou]/$i/ | md5sum; done"
    return [
        Real("musl", ["FOLDER/sort"], prepare=compile_with(musl),
             missing=None if musl else "musl-gcc"),
        Real("musl static", ["FOLDER/sort"], prepare=compile_with(musl, "-static"),
             missing=None if musl else "musl-gcc"),
        Real("busybox", [busybox, "sh", "-c", script], missing=None if busybox else "busybox"),
        Real("go server", ["FOLDER/server"], prepare=compile_go, missing=None if go else "go"),
        Real("qemu-system", [qemu, "-display", "none", "-serial", "stdio", "-no-reboot", "-m", "64",
                             "-accel", "tcg", "-boot", "n", "-nic", "none", "-device",
                             "isa-debug-exit", "-kernel", "FOLDER/boot"],
             prepare=boot_image, issues=STACKS, timeout_s=20,
             missing=None if qemu else "qemu-system-x86_64"),
        Real("gdb", [gdb, "-q", "-batch", "-ex", "break by_value", "-ex", "run", "-ex", "bt",
                     "-ex", "kill", "FOLDER/sort"], prepare=compile_with("gcc", "-g"),
             issues=(TRACES,), other_end=True,
             missing=None if gdb else "gdb"),
        Real("strace", [strace, "-f", "-o", "FOLDER/log", "FOLDER/sort"],
             prepare=compile_with("gcc"), issues=(TRACES,), other_end=True,
             missing=None if strace else "strace"),
        Real("valgrind", [valgrind, "-q", "--error-exitcode=9", "FOLDER/sort"],
             # It believes /proc/self/maps.
             prepare=compile_with("gcc"), issues=STACKS, other_end=True,
             missing=None if valgrind else "valgrind"),
    ]


def boot_image(folder):
    """A multiboot kernel of a few instructions: prints a line on the serial port and ends qemu."""
    (folder / "boot.S").write_text("""
.code32
.section .text
.align 4
.long 0x1BADB002, 0, -0x1BADB002
.globl _start
_start:
  mov $0x3f8, %dx
  mov $words, %esi
1: lodsb
  test %al, %al
  jz 2f
  outb %al, %dx
  jmp 1b
2: mov $3000000, %ecx
  xor %eax, %eax
3: imul $1103515245, %eax, %eax
  add $12345, %eax
  dec %ecx
  jnz 3b
  and $0xf, %al
  add $'a', %al
  outb %al, %dx
  mov $'\\n', %al
  outb %al, %dx
  mov $0x501, %dx
  mov $16, %al
  outb %al, %dx
  hlt
words: .asciz "hello from the machine "
""")
    subprocess.run(["gcc", "-m32", "-nostdlib", "-static", "-Wl,-Ttext=0x100000,--build-id=none",
                    "-o", "boot", "boot.S"], cwd=folder, check=True, capture_output=True)


def programs(chosen=None):
    """All of them, or those of the names chosen.  Only programs of node need the network, once."""
    with_node = chosen is None or any(name.startswith("node") for name in chosen)
    every = [*media(), *engines(), *compilers(), *scripts(with_node), *machines()]
    return [program for program in every if chosen is None or program.name in chosen]
