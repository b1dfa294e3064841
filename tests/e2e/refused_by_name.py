#!/usr/bin/env python3
"""What Tally cannot follow ends the run by name before harm is done; in a child, only the child."""
import json
import os

from refusal import accepted, compile_c, complain, finish, path, profile, refused, run

HEADERS = """
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
"""

CASES = {
    "set_gs": ("static long area[8]; syscall(SYS_arch_prctl, ARCH_SET_GS, area);", ["gs register"]),
    "set_gs_wide": (  # of the option, the kernel looks at 32 bits
        "static long area[8]; syscall(SYS_arch_prctl, 1L << 32 | ARCH_SET_GS, area);",
        ["gs register"],
    ),
    "use_gs": ('long x = 0; __asm__ volatile("mov %%gs:0, %0" : "=r"(x)); harm(x);', ["gs"]),
    "strict": ("prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);", ["strict mode"]),
    "strict_by_seccomp": (
        # Of the first two arguments, the kernel looks at 32 bits.
        "syscall(SYS_seccomp, 1L << 32 | SECCOMP_SET_MODE_STRICT, 1L << 32, NULL);",
        ["strict mode"],
    ),
    "filter_by_address": (
        "struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct "
        "seccomp_data, instruction_pointer)), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};"
        "struct sock_fprog filter = {2, code}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);"
        "prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);",
        ["looks at the address"],
    ),
    "implies_exec": ("personality(READ_IMPLIES_EXEC);", ["READ_IMPLIES_EXEC"]),
    "shared_code": (
        "int id = shmget(IPC_PRIVATE, 4096, 0700); shmctl(id, IPC_RMID, NULL);"
        "shmat(id, NULL, SHM_EXEC);",
        ["shared memory as code"],
    ),
    "over_counters": (
        "mmap(tally(), 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);",
        ["where the memory is that Tally counts in"],
    ),
    "unmaps_counters": ("munmap(tally() - 4096, 8192);", ["that Tally counts in"]),
    "protects_counters": ("mprotect(tally(), 4096, PROT_NONE);", ["that Tally counts in"]),
    "moves_counters": (
        "mremap(tally(), 4096, 8192, MREMAP_MAYMOVE);", ["that Tally counts in"],
    ),
    "moves_over_counters": (
        "char* own = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);"
        "mremap(own, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, tally());",
        ["that Tally counts in"],
    ),
    "child_unseen": (
        "struct clone_args how = {.flags = CLONE_UNTRACED, .exit_signal = 17};"
        "if (syscall(SYS_clone3, &how, sizeof how) == 0) _exit(0);",
        ["CLONE_UNTRACED"],
    ),
    "int80": ('__asm__ volatile("int $0x80" : : "a"(20));', ["int"]),
}


def source(what):
    return HEADERS + (
        # Natively there is none, and what is done to its first page does nothing.
        "__attribute__((unused)) static char* tally(void) {\n"
        "  char line[512];\n"
        "  unsigned long at = 0;\n"
        "  FILE* maps = fopen(\"/proc/self/maps\", \"r\");\n"
        "  while (at == 0 && fgets(line, sizeof line, maps))\n"
        "    if (strstr(line, \"memfd:tally\")) at = strtoul(line, NULL, 16);\n"
        "  fclose(maps);\n"
        "  return (char*)at;\n"
        "}\n"
        "static void harm(long n) { printf(\"harm %%ld\\n\", n); }\n"
        "static void act(void) { %s harm(0); }\n"
        "int main(int argc, char** argv) {\n"
        "  if (argc == 1) { act(); return 0; }\n"
        "  int status = 0;\n"
        "  if (fork() == 0) { act(); _exit(1); }\n"
        "  wait(&status);\n"
        "  puts(WIFSIGNALED(status) && WTERMSIG(status) == 9 ? \"ended\" : \"not ended\");\n"
        "  return 3;\n"
        "}\n" % what
    )


for name, (act, says) in CASES.items():
    program = compile_c(name, source(act))
    done = refused(profile(name + ".tally", program), name, 125, says)
    if b"harm" in done.stdout:
        complain(f"{name}: went on behind what cannot be followed")
    if not os.path.exists(path(name + ".tally")):
        complain(f"{name}: there is no profile of what was counted until then")
    else:
        until_then = json.loads(
            accepted(["report", path(name + ".tally"), "--format=json"], name).stdout
        )
        named = any("was ended by Tally" in issue["message"] for issue in until_then["issues"])
        if not named or not until_then["flow"]["balanced"]:
            complain(f"{name}: until then: {until_then['issues']} {until_then['flow']['faults']}")
    # The same in a child: the others go on, and the profile says what became of it.
    done = run(profile(name + ".child.tally", program, "child"), name + " in a child")
    said = done.stderr.decode()
    if done.status != 3 or done.stdout != b"ended\n":
        complain(f"{name} in a child: {done.end()}, {done.stdout!r}, {said!r}")
    if "was ended by Tally" not in said or not any(s in said for s in says):
        complain(f"{name} in a child: is not named: {said!r}")
    report = json.loads(
        accepted(["report", path(name + ".child.tally"), "--format=json"], name).stdout
    )
    if len(report["runs"]) != 2 or report["run"]["exit_status"] != 3:
        complain(f"{name} in a child: {report['runs']}")
    if not any("was ended by Tally" in issue["message"] for issue in report["issues"]):
        complain(f"{name} in a child: no issue: {report['issues']}")
    if [r["balanced"] for r in report["runs"]] != [True, True]:
        complain(f"{name} in a child: {report['runs']}")

# Shadow stacks are answered as by a processor that has none.
shadow = compile_c(
    "shadow",
    "#include <errno.h>\n#include <stdio.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n"
    "int main() { long r = syscall(SYS_arch_prctl, 0x5001, 1);"
    "  printf(\"%d\\n\", r == -1 && errno == EINVAL); return 0; }",
)
if accepted(profile("shadow.tally", shadow), "shadow stacks").stdout != b"1\n":
    complain("shadow stacks were not refused to the program")

# A program that is executed under a filter goes on natively, by name.
filtered = compile_c(
    "filtered",
    HEADERS
    + "int main() { struct sock_filter code[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};"
    "  struct sock_fprog filter = {1, code}; prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);"
    "  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;"
    '  execl("/bin/echo", "echo", "executed", NULL); return 2; }',
)
done = accepted(profile("filtered.tally", filtered), "exec under a filter", quiet=False)
if done.stdout != b"executed\n" or b"seccomp filter" not in done.stderr:
    complain(f"exec under a filter: {done.stdout!r} {done.stderr!r}")
finish()
