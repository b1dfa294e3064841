"""Programs of the benchmark built from Debian's sources, once for each kind of peer of Tally.

A package is configured once, with a compiler that is a script of ours; then a copy of its folder is
built for each flavor, the script reading from the environment which compiler and flags that is.  So
no makefile has to agree to anything.  All is kept in bench/.work/peers until its recipe changes.
"""

import concurrent.futures
import dataclasses
import os
import pathlib
import shutil
import subprocess

import findings

HERE = findings.HERE
WORK = HERE / ".work" / "peers"
BUILD_TIMEOUT_S = 900

# BOLT 16 wants relocations and fixed addresses, and no function in two parts.
PLAIN = ("-O2", "-w", "-fno-pie", "-no-pie", "-Wl,--emit-relocs")
GCC = ("gcc", *PLAIN, "-fno-reorder-blocks-and-partition")
CLANG = ("clang", *PLAIN, "-Qunused-arguments")
FLAVORS = {
    "gcc": GCC,
    # Named, since gcc takes atomic counters by itself where it sees -pthread.
    "gcc-profile": (*GCC, "-fprofile-generate", "-fprofile-update=single"),
    "gcc-atomic": (*GCC, "-fprofile-generate", "-fprofile-update=atomic"),
    "clang": CLANG,
    "clang-profile": (*CLANG, "-fprofile-generate"),
}
COMPILER = '#!/bin/sh\nexec $PEER_CC "$@" $PEER_FLAGS\n'


@dataclasses.dataclass(frozen=True)
class Recipe:
    package: str
    result: str            # the program, below the package's folder
    build: tuple           # shell commands, $CC being the compiler
    configure: tuple = ()  # the same, once for all flavors


BZIP2 = "bzip2 blocksort bzlib compress crctable decompress huffman randtable"
AUTOCONF = "./configure -q --disable-nls --disable-dependency-tracking"
RECIPES = {
    "gzip": Recipe("gzip", "gzip", ("make -C lib", "make version.c version.h gzip"), (AUTOCONF,)),
    "bzip2": Recipe("bzip2", "peer", (
        f"$CC -D_FILE_OFFSET_BITS=64 {' '.join(f'{n}.c' for n in BZIP2.split())} -o peer",)),
    "xz": Recipe("xz-utils", "src/xz/xz", ("make -C src/liblzma", "make -C src/xz xz"),
                 (f"{AUTOCONF} --disable-shared --disable-doc --disable-scripts",)),
    "zstd": Recipe("libzstd", "programs/zstd", (
        "make -C programs zstd CC=$CC HAVE_ZLIB=0 HAVE_LZMA=0 HAVE_LZ4=0 "
        "ZSTD_LEGACY_SUPPORT=0 ZSTD_NO_ASM=1 BACKTRACE=0",)),
    "lua": Recipe("lua5.4", "peer", (
        "rm -f src/luac.c",
        "echo '#define DEB_HOST_MULTIARCH \"x86_64-linux-gnu\"' > src/lua5.4-deb-multiarch.h",
        "$CC -DLUA_USE_POSIX src/*.c -lm -o peer")),
    "sqlite3": Recipe("sqlite3", "peer", (
        "$CC -DSQLITE_THREADSAFE=1 -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_ENABLE_MATH_FUNCTIONS "
        "sqlite3.c shell.c -o peer -lm -lpthread",), (
        "./configure -q --disable-tcl --disable-readline", "make sqlite3.c shell.c")),
    "gawk": Recipe("gawk", "gawk", ("make -C support", "make gawk"), (
        f"{AUTOCONF} --disable-extensions --disable-pma --disable-mpfr --without-readline",)),
    "compress": Recipe("ncompress", "peer", ("$CC -DUSERMEM=800000 -DLSTAT -DUTIME_H "
                                             "compress42.c -o peer",)),
    "cjpeg": Recipe("libjpeg-turbo", "build/cjpeg-static", (
        "cmake -S . -B build -DCMAKE_C_COMPILER=$CC -DWITH_SIMD=0 -DENABLE_SHARED=0",
        "make -C build cjpeg-static")),
}
# Programs of the benchmark by the recipe that builds them.
PROGRAMS = {name: name.split()[0] for name in (
    "gzip", "bzip2", "xz", "zstd", "lua fannkuch", "lua trees", "sqlite3", "gawk", "compress",
    "cjpeg")}
CLANG_RUNTIME = "llvm-14/lib/clang/*/lib/linux/libclang_rt.profile-x86_64.a"
# Programs that are needed, and Debian's packages that have them.
TOOLS = {"gcc": "gcc", "clang": "clang", "make": "make", "dpkg-source": "dpkg-dev",
         "llvm-bolt-16": "bolt-16", "valgrind": "valgrind", "qemu-x86_64": "qemu-user",
         "tclsh": "tcl", "cmake": "cmake"}


def missing_tools():
    """Debian's packages of what is not here."""
    missing = {package for tool, package in TOOLS.items() if not shutil.which(tool)}
    if not any(pathlib.Path("/usr/lib").glob(CLANG_RUNTIME)):
        missing.add("libclang-rt-14-dev")
    return sorted(missing)


def environment(flavor=None):
    """For make and configure; without a flavor it is the bare compiler."""
    script = WORK / "cc"
    if not script.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        script.write_text(COMPILER)
        script.chmod(0o755)
    compiler, *flags = FLAVORS[flavor] if flavor else ("gcc", "-O2", "-w")
    # Patched sources look newer than what the autotools made of them.
    as_it_is = dict.fromkeys(("ACLOCAL", "AUTOCONF", "AUTOHEADER", "AUTOMAKE"), ":")
    return dict(findings.ENVIRONMENT, **as_it_is, CC=str(script), CFLAGS="-O2", PEER_CC=compiler,
                PEER_FLAGS=" ".join(flags))


def shell(commands, folder, flavor=None):
    """Runs the commands in the folder; what they say is kept in peer.log there."""
    with open(folder / "peer.log", "ab") as log:
        done = subprocess.run(["sh", "-e", "-c", "\n".join(commands)], cwd=folder, stdout=log,
                              stderr=log, stdin=subprocess.DEVNULL, env=environment(flavor),
                              check=False, timeout=BUILD_TIMEOUT_S)
    if done.returncode != 0:
        last = (folder / "peer.log").read_text(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"not built: {' '.join(last)[:200]}")


def once(folder, stamp, make):
    """Calls make(folder) unless the folder was made by what `stamp` says.

    Where it is belongs to it: gcc's counters go to the folder in which they were compiled."""
    path = folder / "peer.stamp"
    stamp += f"\n{folder}\n"
    if path.exists() and path.read_text() == stamp:
        return
    shutil.rmtree(folder, ignore_errors=True)
    make(folder)
    path.write_text(stamp)


def configured(name):
    """The folder with the package's source as its makefile wants it."""
    recipe = RECIPES[name]

    def make(folder):
        source = findings.fetch([recipe.package]) / recipe.package
        shutil.copytree(source, folder, symlinks=True)
        shell(recipe.configure, folder)

    folder = WORK / name / "configured"
    once(folder, repr((recipe.package, recipe.configure)), make)
    return folder


def built(name, flavor):
    """The program; RuntimeError says why there is none."""
    recipe = RECIPES[name]

    def make(folder):
        shutil.copytree(WORK / name / "configured", folder, symlinks=True)
        (folder / "peer.stamp").unlink()
        shell(recipe.build, folder, flavor)

    folder = WORK / name / flavor
    once(folder, repr((recipe, FLAVORS[flavor])), make)
    return folder / recipe.result


def instrumented(name):
    """BOLT's copy of the plain build, which writes its counts to counts.fdata beside it."""
    recipe = RECIPES[name]

    def make(folder):
        folder.mkdir(parents=True)
        findings.bolt_instrument(WORK / name / "gcc" / recipe.result, folder / "peer",
                                 folder / "counts.fdata")

    folder = WORK / name / "bolt"
    once(folder, repr((recipe, FLAVORS["gcc"])), make)
    return folder / "peer"


def attempt(make, *arguments):
    """What it returns, or in words why it failed."""
    try:
        return make(*arguments)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        return f"not built: {' '.join(str(error).removeprefix('not built: ').split())[-300:]}"


def build_all(names):
    """(recipe, flavor) -> the program, or in words why there is none."""
    ready, results = {}, {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name in names:  # one after the other: apt-get and its lists are shared
            ready[name] = attempt(findings.fetch, [RECIPES[name].package])
        fetched = [n for n in names if not isinstance(ready[n], str)]
        ready.update(zip(fetched, pool.map(lambda n: attempt(configured, n), fetched)))
        pairs = [(n, f) for n in names for f in FLAVORS if not isinstance(ready[n], str)]
        results.update(zip(pairs, pool.map(lambda p: attempt(built, *p), pairs)))
    for name in names:
        if isinstance(ready[name], str):
            results.update({(name, f): ready[name] for f in FLAVORS})
        plain = results[name, "gcc"]
        results[name, "bolt"] = plain if isinstance(plain, str) else attempt(instrumented, name)
    return results


def plugin():
    """QEMU's plugin that counts instructions (bench/qemu_count.c), built; RuntimeError if not."""
    result = WORK / "qemu_count.so"
    source = HERE / "qemu_count.c"
    if not result.exists() or result.stat().st_mtime < source.stat().st_mtime:
        findings.sh(["gcc", "-O2", "-shared", "-fPIC", source, "-o", result], WORK)
    return result
