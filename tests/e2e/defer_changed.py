#!/usr/bin/env python3
"""What was left out of a procedure is made when control gets there, though its page is not readable
as code at that moment, or has other bytes by then: as if the procedure had been made as a whole.
Each program is taught with 0; in the other modes it goes where it has not been."""
import os
import shutil
import sqlite3

from refusal import accepted, compile_c, complain, finish, path

# A procedure on two pages: the first is made writable for a while, and changed, when its second
# half goes on to where it has not been.
TWO_PAGES = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <stdint.h>
volatile int coldcount, go, sum;
extern int straddle(int);
extern char straddle_start[], patchme[];
__attribute__((noinline)) void begin_patch(void) {
  void* page = (void*)((uintptr_t)patchme & ~4095ul);
  if (go && mprotect(page, 4096, PROT_READ|PROT_WRITE)) exit(3);
}
__attribute__((noinline)) void end_patch(void) {
  void* page = (void*)((uintptr_t)patchme & ~4095ul);
  if (go) { if (go > 1) patchme[1] = 8; if (mprotect(page, 4096, PROT_READ|PROT_EXEC)) exit(4); }
}
__asm__(".section .strad,\"ax\",@progbits\n.balign 4096\n.fill 4000,1,0xcc\n"
 ".globl straddle\n.type straddle,@function\nstraddle:\n.cfi_startproc\nstraddle_start:\n"
 "cmp $0, %edi\n jl first\n jmp second\n"
 "first: .globl patchme\npatchme: mov $7, %eax\n ret\n"
 ".fill 200,1,0x90\n"
 "second: push %rbx\n.cfi_def_cfa_offset 16\n call begin_patch\n"
 " cmpl $0, go(%rip)\n je 1f\n"
 " incl coldcount(%rip)\n"
 "1: call end_patch\n pop %rbx\n.cfi_def_cfa_offset 8\n mov coldcount(%rip), %eax\n ret\n"
 ".cfi_endproc\n.size straddle,.-straddle\n.text\n");
int main(int argc, char** argv) {
  sum += straddle(-1);
  for (int i = 0; i < 100; ++i) sum += straddle(1);
  go = argc > 1 ? atoi(argv[1]) : 0;
  sum += straddle(1);
  sum += straddle(-1);
  printf("go %d cold %d sum %d\n", go, coldcount, sum);
}
"""
# Another page of the code is made writable for a while; what is read of it from then on ends in the
# middle of the procedure.
ON_THE_EDGE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <stdint.h>
volatile int go, x, y, z, guard;
extern int victim(int); extern int other(int);
extern char other_[], spare_page[];
__asm__(".section .strad,\"ax\",@progbits\n.balign 4096\n"
 ".globl other\n.type other,@function\nother:\n.cfi_startproc\n mov %edi,%eax\n add $5,%eax\n"
 "ret\n.cfi_endproc\n.size other,.-other\n"
 ".fill 262144-64-(.-other),1,0xcc\n"
 ".globl victim\n.type victim,@function\nvictim:\n.cfi_startproc\n"
 " incl x(%rip)\n cmpl $0, go(%rip)\n jne cold\n mov $3,%eax\n ret\n .fill 80,1,0xcc\n"
 "cold: incl y(%rip)\n movl $77, z(%rip)\n mov $9, %eax\n ret\n.cfi_endproc\n"
 ".size victim,.-victim\n"
 ".balign 4096\n.globl spare_page\nspare_page: .fill 4096,1,0xcc\n.text\n");
int main(int argc, char** argv) {
  int g = argc > 1 ? atoi(argv[1]) : 0, s = 0;
  for (int i = 0; i < 100; ++i) s += victim(1);
  if (g) {
    if (mprotect(spare_page, 4096, PROT_READ|PROT_WRITE)) return 3;
    if (mprotect(spare_page, 4096, PROT_READ|PROT_EXEC)) return 4;
    for (int i = 0; i < 3; ++i) s += other(i);
    go = g;
  }
  s += victim(2);
  printf("s %d x %d y %d z %d\n", s, x, y, z);
}
"""
# A thread is in a loop whose rare part is changed, to an instruction of the same size; then it goes
# there.
IN_A_LOOP = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <stdint.h>
volatile int stop, rare, running;
volatile unsigned long n;
volatile int a,b,c,d;
__attribute__((noinline,aligned(4096),section(".hotpage")))
static int hot(int x) {
  int s = x;
  while (!stop) {
    running = 1; ++n;
    if (__builtin_expect(rare, 0)) {
      a++;
      __asm__ goto (".globl key\nkey: .byte 0x0f,0x1f,0x44,0,0\n"
                    ".pushsection .data\n.globl dest\ndest: .quad %l0\n.popsection" ::::lbl);
      b++;
      s += 7; rare = 0; stop = 1;
      continue;
lbl:  c++; s+= 9; rare = 0; stop = 1; d++;
    }
    s = s * 5 + 1;
  }
  return s;
}
__attribute__((noinline,section(".hotpage"))) int empty(int x) { return x + 1; }
extern char key[]; extern char* dest;
static void* t2(void* a) { return (void*)(long)hot((int)(long)a); }
int main(int argc, char** argv) {
  int mode = argc > 1 ? atoi(argv[1]) : 0;
  pthread_t t;
  pthread_create(&t, 0, t2, (void*)5L);
  while (!running) ;
  usleep(20000);
  if (mode == 0) { stop = 1; }
  else {
    void* page = (void*)((uintptr_t)key & ~4095ul);
    if (mprotect(page, 4096, PROT_READ|PROT_WRITE|PROT_EXEC)) return 3;
    unsigned char c[5] = {0xe9}; int dd = dest - (key + 5); memcpy(c+1, &dd, 4);
    if (mode >= 2) memcpy(key, c, 5);
    if (mode >= 3) mprotect(page, 4096, PROT_READ|PROT_EXEC);
    usleep(10000);
    rare = 1;
  }
  void* r;
  for (int i = 0; i < 300 && !stop; ++i) usleep(10000);
  printf("mode %d stop %d a %d b %d c %d d %d rare %d %d\n", mode, stop,a,b,c,d,rare, empty(3));
  fflush(stdout);
  if (stop) pthread_join(t, &r);
  return 0;
}
"""


def run(program, mode, cache, *options):
    file, what = path("run.tally"), f"{os.path.basename(program)} {mode} {' '.join(options)}"
    copy = path("copied")
    shutil.rmtree(copy, ignore_errors=True)
    if mode == 0:
        copy = cache
    else:
        shutil.copytree(cache, copy)
    # Code that was changed after it had run is named.
    done = accepted(["profile", "-o", file, *options, "--", program, str(mode)], what, quiet=False,
                    env=dict(os.environ, TALLY_CACHE=copy))
    with sqlite3.connect(file) as database:
        facts = database.execute("SELECT value FROM facts WHERE name = 'blocks_made_late'")
        late = facts.fetchone()[0]
    print(f"{what}: {done.stdout.decode().strip()}; {late} blocks made late")
    return done.stdout, int(late)


for name, source, modes in (("two_pages", TWO_PAGES, (1, 2)), ("on_the_edge", ON_THE_EDGE, (1,)),
                            ("in_a_loop", IN_A_LOOP, (1, 2, 3))):
    for flags in (["-O2", "-pie"], ["-O1", "-no-pie"]):
        program = compile_c(name + "".join(flags), source, *flags, "-pthread")
        cache = path(name + "".join(flags) + "-cache")
        run(program, 0, cache)
        run(program, 0, cache)
        for mode in modes:
            whole, _ = run(program, mode, cache, "--no-opt=defer")
            deferred, late = run(program, mode, cache)
            if deferred != whole:
                complain(f"{name} {mode}: {deferred}, but made as a whole {whole}")
            if late == 0:
                complain(f"{name} {mode}: nothing was left out where control went")
finish()
