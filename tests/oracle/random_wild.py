"""Random programs (random_flow.py) with what compilers seldom make or never, in surroundings that
a translation may get wrong as well.

  * Ways: system calls amid live flags, data below the stack pointer, instructions that overlap,
    data among code, a prefix that is jumped over, operands of all kinds relative to rip, a
    procedure that runs on into the next one, returns by way of a jump, the second stack of a
    coroutine, calls of a library through its linkage table.
    Instructions whose constant the program has written itself.
  * Surroundings (`MAIN`): a timer whose signals come anywhere, when a run under Tally asks for it;
    handlers on a stack of their own, that call the program again, or that leave for its outermost
    procedure; forks, whose children do the same as their parent; a program that is loaded, unloaded
    and loaded again as a library; one so large that calls and returns are paired from the start.

What a timer's handler executes is not compared, but that it was told an address of the program,
never one of its translation, is part of the output.
"""
import random

import random_flow

MAIN = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
typedef unsigned long number;
typedef number flow_t(number bits, long fuel);
static char** arguments;
static struct { number from, to; } code[64];
static int codes, strange, moving;

#ifdef LIBRARY
static flow_t* flow;
#else
number flow(number bits, long fuel);
extern STORED number outermost, left, fuel, other;
extern char again[], flow_end[];
#endif

static int add_code(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size, (void)data;
  for (int i = 0; i < info->dlpi_phnum && codes < 64; ++i) {
    const ElfW(Phdr)* p = &info->dlpi_phdr[i];
    if (p->p_type != PT_LOAD || !(p->p_flags & PF_X)) continue;
    code[codes].from = info->dlpi_addr + p->p_vaddr;
    code[codes++].to = info->dlpi_addr + p->p_vaddr + p->p_memsz;
  }
  return 0;
}

__attribute__((noinline)) static void note_code(void) {
  moving = 1;
  codes = 0;
  dl_iterate_phdr(add_code, 0);
  moving = 0;
}

static void on_alarm(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number, (void)info;
  number at = (number)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP];
  for (int i = 0; i < codes; ++i)
    if (at >= code[i].from && at < code[i].to) return;
  strange |= !moving;
}

static __thread int depth;
static void on_fault(int signal_number, siginfo_t* info, void* context) {
  (void)signal_number, (void)info;
  greg_t* registers = ((ucontext_t*)context)->uc_mcontext.gregs;
  registers[REG_RIP] += 2;
#ifndef LIBRARY
  if (depth) return;
  if (HANDLER == 1) {
    ++depth;
    number kept[4] = {outermost, left, fuel, other};
    registers[REG_R14] += (greg_t)flow((number)registers[REG_R15], 20);
    outermost = kept[0], left = kept[1], fuel = kept[2], other = kept[3];
    --depth;
  }
  if (HANDLER == 2) {
    registers[REG_RIP] = (greg_t)again;
    registers[REG_RSP] = (greg_t)outermost;
  }
#endif
}

static number run(int i) {
  static __thread char stack[64 << 10];
  stack_t there = {.ss_sp = stack, .ss_size = sizeof stack};
  if (HANDLER) sigaltstack(&there, 0);
#ifdef LIBRARY
  moving = 1;
  void* library = dlopen(LIBRARY, RTLD_NOW);
  flow = (flow_t*)dlsym(library, "flow");
  note_code();
#endif
  number result = flow(strtoul(arguments[i], 0, 0), atol(arguments[i + 1]));
#ifdef LIBRARY
  if (i % 4 == 1) dlclose(library);
#endif
  return result;
}
static number in_child(int i) {
  number result = 0;
  int ends[2];
  if (pipe(ends)) abort();
  pid_t child = fork();
  if (!child) {
    result = run(i);
    _exit(write(ends[1], &result, sizeof result) != sizeof result);
  }
  if (i % 4 == 1 && read(ends[0], &result, sizeof result) < 0) abort();
  number own = run(i);
  if (i % 4 != 1 && read(ends[0], &result, sizeof result) < 0) abort();
  waitpid(child, 0, 0);
  return own * 3 + result;
}
#define RUN_ALONE(i) (FORKS ? in_child(i) : run(i))
#define TROUBLE (strange ? ", interrupted at a strange address" : "")
""" + random_flow.RUN_ALL + r"""
int main(int argc, char** argv) {
  struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  if (HANDLER) fault.sa_flags |= SA_ONSTACK | SA_NODEFER;
  sigaction(SIGILL, &fault, 0);
  note_code();
#ifndef LIBRARY
  number first = (number)flow & -4096ul;
  if (PATCHED && mprotect((void*)first, (number)flow_end - first, 7)) abort();
#endif
  if (getenv("TIMER_US")) {
    struct sigaction alarmed = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGALRM, &alarmed, 0);
    struct itimerval each = {{0, atol(getenv("TIMER_US"))}, {0, atol(getenv("TIMER_US"))}};
    setitimer(ITIMER_REAL, &each, 0);
  }
  return run_all(argc, argv);
}
"""


class Surroundings:
    """What main does with the procedures, and how the program is linked."""

    def __init__(self, rng, threads):
        self.threads = threads
        self.handler = rng.choice((0, 0, 1, 2))
        self.forks = not threads and rng.random() < 0.25
        self.library = not threads and not self.forks and rng.random() < 0.25
        self.alarmed = rng.random() < 0.5
        self.patched = not threads and not self.library and rng.random() < 0.2
        self.large = rng.random() < 0.2  # so that calls and returns are paired from the start
        # Of several threads each might bind a function, or the first alone.
        self.binds_late = not threads and rng.random() < 0.5

    def definitions(self, library):
        made = {"PATCHED": int(self.patched), "THREADS": int(self.threads),
                "FORKS": int(self.forks), "HANDLER": self.handler,
                "STORED": "__thread" if self.threads else ""}
        if self.library:
            made["LIBRARY"] = f'"{library}"'
        return [f"-D{name}={value}" for name, value in made.items()]


class Program(random_flow.Program):
    """`flow` and its procedures; `surroundings` for MAIN."""

    WAYS = ("syscall", "below", "operands", "operands", "prefix", "island", "overlap", "strings",
            "aligned", "swap", "linkage", "linkage", "fault", "patched")

    def __init__(self, seed):
        super().__init__(seed)
        self.faults = 0
        rng = random.Random(f"wild {seed}")
        self.surroundings = Surroundings(rng, self.threads)
        self.hides = False
        for procedure in self.procedures:
            procedure.skips_early = False
            procedure.by_jump = rng.random() < 0.1
            procedure.runs_on = rng.random() < 0.2
        self.swaps = rng.random() < 0.3 and not self.leaves_far
        if self.surroundings.library:
            self.position_independent = True
        if self.swaps or self.surroundings.handler == 2 and not self.all_described:
            self.surroundings.handler = 0
        if self.threads:
            self.surroundings.handler = 0  # valgrind fails at what the others do there
        self.may_fault = rng.random() < 0.5
        self.patches = 0

    def ways(self, procedure, block):
        if self.rng.random() < 0.6:
            return super().ways(procedure, block)
        kind = self.rng.choice(self.WAYS)
        if kind == "swap" and not self.swaps or kind == "fault" and not self.may_fault:
            kind = "operands"
        if kind == "patched" and not self.surroundings.patched:
            kind = "overlap"
        return getattr(self, "way_" + kind)(procedure, block)

    # -- Ways.

    def way_fault(self, _procedure, _block):
        """Seldom: a signal takes long."""
        on = self.new_label()
        self.bits()
        self.out("test $0x7e00000, %r15d", f"jne {on}", "ud2")
        self.at(on)

    def way_syscall(self, _procedure, _block):
        """One that has the same result everywhere; flags come back."""
        self.out(f"cmp %{self.register()}, %{self.register()}",
                 f"mov ${self.rng.choice((102, 104, 1000))}, %eax", "syscall", "mov %rax, %r13",
                 "lahf", "seto %al", "and $0xef01, %eax", "rol $7, %r14", "xor %rax, %r14",
                 "mov %r13, %rax", "mov $5, %r11d")  # which valgrind leaves otherwise
        if self.position_independent:
            self.out("mov $3, %ecx")

    def way_below(self, procedure, block):
        """Data below the stack pointer lives on through branches and loops."""
        rng = self.rng
        places = rng.sample(range(1, 17), 3)
        for place in places:
            self.out(f"mov %{self.register()}, -{8 * place}(%rsp)")
        for _ in range(rng.randrange(1, 3)):
            on = self.new_label()
            self.out(f"cmp %{self.register()}, %{self.register()}",
                     f"j{rng.choice(random_flow.CONDITIONS)} {on}")
            self.without("rsp")
            self.at(on)
        self.way_counted(procedure, block)
        for place in places:
            self.out(f"mov -{8 * place}(%rsp), %{self.register()}")
        self.out(f"cmp -{8 * places[0]}(%rsp), %{self.register()}")

    def way_operands(self, _procedure, _block):
        """Operands relative to rip with constants behind them, and instructions of all lengths."""
        rng, a, b = self.rng, self.register(), self.register()
        where = self.memory("memory", 8 * rng.randrange(30))
        big = rng.choice((0x12345678, -5, 0x7fffffff))
        prefix = "%fs:" if self.threads else ""
        cases = [(f"cmpq ${big}, {where}",), (f"addl ${big}, {where}",),
                 (f"imul ${big}, {where}, %{a}", "cmp %rax, %rbx"),
                 (f"testb $0x41, {where}",), (f"movw $0x1234, {where}", f"cmpw $7, {where}"),
                 (f"movq ${big}, {where}", f"subb $3, {where}"),
                 (f"movdqu {where}, %xmm1", "paddq %xmm1, %xmm1", f"movq %xmm1, %{a}"),
                 (f"movq %{a}, %xmm2", f"pshufd $0x4e, {prefix}wide{self.suffix()}, %xmm3",
                  "pxor %xmm3, %xmm2", f"movq %xmm2, %{b}"),
                 (f"shld $3, %{a}, {where}", "cmp %rcx, %rax"),
                 (f"bts $5, {where}", "cmp %rsi, %rdx"),
                 (f"xchg %{a}, {where}",), (f"lock xadd %{a}, {where}",),
                 (f"lock cmpxchg %{a}, {where}",), (f"bswap %{a}",),
                 (f"crc32q {where}, %{a}",), (f"movzbl {where}, %{random_flow.LOW[a]}",),
                 (f"movslq {where}, %{a}",), (f"cmovl {where}, %{a}",), (f"setg {where}",),
                 (f"movabs $0x{rng.getrandbits(63):x}, %{a}",),
                 (f"lea {where}, %r13", f"mov 8(%r13), %{a}", f"add %{a}, 16(%r13)")]
        if self.threads:
            cases.pop()
        if rng.random() < 0.2:
            self.push(where if rng.random() < 0.5 else f"%{a}")
            self.pop(where if rng.random() < 0.5 else f"%{b}")
        self.out(*rng.choice(cases))

    def suffix(self):
        return "@tpoff" if self.threads else "(%rip)"

    def way_prefix(self, _procedure, _block):
        """As glibc does where a process has one thread."""
        where = self.memory("memory", 8 * self.rng.randrange(32))
        on = self.new_label()
        self.out(f"j{self.rng.choice(random_flow.CONDITIONS)} {on}", ".byte 0xf0")
        self.at(on)
        self.out(f"{self.rng.choice(('addq', 'subq'))} %{self.register()}, {where}")

    def way_island(self, _procedure, _block):
        """What lies behind a jump is no code."""
        on = self.new_label()
        count = self.rng.randrange(1, 24)
        garbage = ", ".join(str(self.rng.randrange(256)) for _ in range(count))
        self.out(f"jmp {on}", f".byte {garbage}")
        self.at(on)

    def way_overlap(self, _procedure, _block):
        """A constant of eight bytes that is also code."""
        a, b = self.register(), self.register()
        on = self.new_label()
        self.out(f"j{self.rng.choice(random_flow.CONDITIONS)} {on}", ".byte 0x48, 0xb8")
        self.at(on)
        self.out(f"lea 3(%{a}), %{b}" if a != "r12" else f"lea 3(%rbx), %{b}",
                 f"nop; .skip 8 - (. - {on}), 0x90")

    def way_patched(self, _procedure, _block):
        """A constant of the instruction behind a branch, or of one elsewhere."""
        self.patches += 1
        other, on = self.rng.randrange(self.patches) + 1, self.new_label()
        self.out(f"movl %r15d, .Lpatched_{other}+1(%rip)",
                 f"cmp %{self.register()}, %{self.register()}",
                 f"j{self.rng.choice(random_flow.CONDITIONS)} {on}")
        self.at(on)
        self.at(f".Lpatched_{self.patches}")
        self.out(f"mov ${self.patches}, %{self.rng.choice(('eax', 'ecx', 'edx'))}",
                 "add %rax, %r14", "add %rcx, %r14")

    def way_strings(self, procedure, block):
        """Backwards, so that the direction flag is on amid branches; and none at all."""
        rng, head = self.rng, self.new_label()
        if self.threads:
            return self.way_syscall(procedure, block)
        self.out("lea memory+128(%rip), %rdi", "lea memory+120(%rip), %rsi", "std",
                 f"mov ${rng.randrange(1, 9)}, %ecx")
        self.at(head)
        self.out(rng.choice(("movsq", "lodsq", "stosl", "stosb")), "sub $1, %ecx", f"jne {head}",
                 "mov $2, %ecx", "rep movsb", "cld", "rep stosb", "mov $1, %edi", "mov $5, %esi",
                 "cmp %rax, %rdx")
        return None

    def frame_by_rbp(self, inside):
        self.push("%rbp")
        self.out("mov %rsp, %rbp")
        self.cfi("def_cfa_register rbp")
        self.out("and $-64, %rsp")
        inside()
        self.out("leave")
        self.cfi("def_cfa_register rsp")
        self.cfi("adjust_cfa_offset -8")
        self.out("cmp %rax, %rdx")

    def way_aligned(self, _procedure, _block):
        """A frame that rbp finds again."""
        a, b, head = self.register("rbp"), self.register("rbp"), self.new_label()

        def inside():
            self.out("sub $64, %rsp", f"mov %{a}, 8(%rsp)", f"mov $5, %{random_flow.LOW[a]}")
            self.at(head)
            other, third = self.register("rbp"), self.register("rbp", a)
            self.out(self.rng.choice((f"add %{other}, %{third}", f"imul %{other}, %{third}",
                                      f"adc $1, %{third}")))
            self.out(f"dec %{a}", f"jne {head}", f"mov 8(%rsp), %{b}")
        self.frame_by_rbp(inside)

    def way_swap(self, _procedure, _block):
        """A call on the other stack, which ends there for who goes by call frame information."""
        callee = self.rng.choice(self.plain_callees())
        other = self.memory("other")
        self.cfi("remember_state")
        self.cfi("undefined rip")
        self.out(f"xchg %rsp, {other}", f"call {callee.name}", f"xchg %rsp, {other}")
        self.cfi("restore_state")

    def way_linkage(self, _procedure, _block):
        """The registers that a library leaves differ from run to run."""
        self.push("%rdi")
        called = self.rng.choice(("labs@PLT", "*labs@GOTPCREL(%rip)"))
        self.frame_by_rbp(lambda: self.out("mov %rax, %rdi", f"call {called}"))
        for number, register in enumerate(("rcx", "rdx", "rsi", "r8", "r9", "r10", "r11")):
            self.out(f"mov ${number}, %{random_flow.LOW[register]}")
        self.pop("%rdi")
        self.out("cmp %rax, %rdi")

    # -- Procedures.

    def leave(self, procedure):
        if not procedure.by_jump or procedure.wide or procedure.skips:
            return super().leave(procedure)
        self.leave_frame(procedure)
        self.pop("%r13")
        self.cfi("register rip, r13")
        self.out("jmp *%r13")
        self.cfi("adjust_cfa_offset 8")
        self.cfi("restore rip")
        return None

    def end(self, procedure):
        """The next one begins where this ends, and may be run into."""
        at = self.procedures.index(procedure)
        follows = self.procedures[at + 1:at + 2]
        if not (procedure.runs_on and procedure.can_be_entered_inside() and follows
                and follows[0] in self.plain_callees()):
            return super().end(procedure)
        self.out(f"jmp .Lgo_on_{procedure.name}")
        super().end(procedure)
        self.at(f".Lgo_on_{procedure.name}")
        return None

    def text(self):
        made = super().text()
        # State that is the same at each call of `flow`.
        begin = [f"  movq $0, {self.memory('memory', 8 * i)}" for i in range(32)]
        begin += [f"  movq $0, {self.memory('wide', 8 * i)}" for i in range(2)]
        if self.threads:
            begin += ["  mov %fs:0, %rax", "  lea other_end@tpoff(%rax), %rax"]
        else:
            begin += ["  lea other_end(%rip), %rax"]
        begin += [f"  mov %rax, {self.memory('other')}"]
        made = made.replace(".Lagain:\n", ".Lagain:\nagain:\n")
        after = "flow_end:\n" + (f"  .space {4 << 20}\n" if self.surroundings.large else "")
        made = made.replace('  .section .data.rel.ro,"aw"', after + '  .section .data.rel.ro,"aw"')
        for name in ("outermost", "left", "fuel", "other", "again", "flow_end"):
            visible = "" if not self.surroundings.library else f"  .hidden {name}\n"
            made = f"  .globl {name}\n{visible}" + made
        made = made.replace("  mov %rdi, %r15\n", "\n".join(begin) + "\n  mov %rdi, %r15\n", 1)
        return made.replace("left: .zero 8\n", "left: .zero 8\nother: .zero 8\n  .p2align 4\n"
                            f"wide: .zero 16\n  .zero {1 << (18 if self.threads else 20)}\n"
                            "other_end: .zero 16\n")
