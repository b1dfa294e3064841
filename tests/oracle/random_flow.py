"""Programs at random, made of what a translation may get wrong: control that goes everywhere while
flags and registers are live.

Each program is 4 to 15 procedures of blocks in assembly.  Every value and every flag that is
defined finds its way into a sum that the program prints, so a register or flag that a translation
changes is seen at once; and ways are chosen by a register of random bits that arguments give, so
that two runs of a program go ways of their own.

A program ends: control may go round only through a point that takes one from `fuel`, and leaves the
procedure when there is none, or in a loop that a register counts down.

Some programs (`hides`) have procedures that change their return address in another block than the
one that returns, which Tally does not see, but may name.

Reserved are r15 (random bits), r14 (the sum), r13 (addresses, which differ from run to run) and
rsp.  A procedure of kind `wide` is called with 16 bytes above its return address, and takes them
with it.  Flags that processors leave undefined are never read: behind `and` and its like AF is
masked out of what is summed up.
"""
import random

FREE = ("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12")
LOW = {"rax": "eax", "rbx": "ebx", "rcx": "ecx", "rdx": "edx", "rsi": "esi", "rdi": "edi",
       "rbp": "ebp", **{f"r{i}": f"r{i}d" for i in range(8, 16)}}
BYTE = {"rax": "al", "rbx": "bl", "rcx": "cl", "rdx": "dl", "rsi": "sil", "rdi": "dil",
        "rbp": "bpl", **{f"r{i}": f"r{i}b" for i in range(8, 16)}}
CONDITIONS = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "p", "np", "l", "ge", "le",
              "g")

# The end of each MAIN: runs each pair of arguments, in threads or one after the other.
RUN_ALL = r"""
static void* in_thread(void* i) { return (void*)run((int)(long)i); }
static int run_all(int argc, char** argv) {
  arguments = argv;
  unsigned long sum = 0;
  pthread_t threads[16];
  void* result;
  for (int i = 1; i + 1 < argc; i += 2)
    if (THREADS) pthread_create(&threads[i / 2], 0, in_thread, (void*)(long)i);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (THREADS) pthread_join(threads[i / 2], &result);
    sum = sum * 31 + (THREADS ? (unsigned long)result : RUN_ALONE(i));
  }
  printf("%lx%s\n", sum, TROUBLE);
  return (int)(sum & 63);
}
"""

MAIN = r"""
#define RUN_ALONE run
#define TROUBLE ""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
unsigned long flow(unsigned long bits, long fuel);
static char** arguments;
static unsigned long run(int i) {
  return flow(strtoul(arguments[i], 0, 0), atol(arguments[i + 1]));
}
static void on_fault(int number, siginfo_t* info, void* context) {
  (void)number, (void)info;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
}
""" + RUN_ALL + r"""
int main(int argc, char** argv) {
  struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
  sigaction(SIGILL, &action, 0);
  return run_all(argc, argv);
}
"""


class Procedure:
    def __init__(self, number, rng):
        self.name = f"p{number}"
        self.wide = rng.random() < 0.15
        self.frame = rng.choice((0, 0, 0, 24, 40))
        self.saves = rng.random() < 0.3
        self.blocks = rng.randrange(3, 14)
        self.skips = rng.random() < 0.1
        self.skips_early = False  # changes its return address long before it returns
        self.described = rng.random() < 0.8

    def label(self, block):
        return f".L{self.name}_{block}"

    def can_be_entered_inside(self):
        """Nothing of its own is on the stack, so it may be left and entered anywhere."""
        return not self.wide and not self.frame and not self.saves and not self.skips


class Program:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.described = False  # the procedure that is being made
        self.all_described = self.rng.random() < 0.7
        self.position_independent = self.rng.random() < 0.7
        self.stripped = self.rng.random() < 0.2
        self.sized = self.rng.random() < 0.8
        self.threads = self.rng.random() < 0.3
        self.leaves_far = self.all_described and self.rng.random() < 0.4
        self.faults = 1 if self.rng.random() < 0.2 else 0
        count = self.rng.randrange(4, 16)
        self.procedures = [Procedure(i, self.rng) for i in range(count)]
        self.procedures[0].wide = self.procedures[0].skips = False
        self.hides = self.rng.random() < 0.1
        for procedure in self.procedures:
            procedure.skips_early = self.hides and procedure.skips
        self.lines, self.data, self.labels = [], [], 0

    # -- Small parts.

    def out(self, *lines):
        self.lines += ["  " + line for line in lines]

    def at(self, label):
        self.lines.append(label + ":")

    def new_label(self):
        self.labels += 1
        return f".L{self.labels}"

    def cfi(self, text):
        if self.described:
            self.lines.append("  .cfi_" + text)

    def memory(self, name, offset=0):
        """Each thread has its own."""
        if self.threads:
            return f"%fs:{name}@tpoff+{offset}"
        return f"{name}+{offset}(%rip)"

    def register(self, *but):
        return self.rng.choice([r for r in FREE if r not in but])

    def push(self, what):
        self.out(f"push {what}")
        self.cfi("adjust_cfa_offset 8")

    def pop(self, what):
        self.out(f"pop {what}")
        self.cfi("adjust_cfa_offset -8")

    def bits(self):
        """New random bits, no flag kept."""
        self.out("imul $0x5851f42d, %r15, %r15", "add $0x14057b7f, %r15")

    # -- Straight code.

    def sum_up(self):
        """Adds registers and flags to the sum.  AF is left out, and so are undefined flags, since
        this stands only behind instructions that define all but AF."""
        kept = self.register("rax")
        self.out(f"mov %rax, %{kept}", "lahf", "seto %al", "and $0xef01, %eax",
                 "rol $7, %r14", "xor %rax, %r14",
                 f"mov %{kept}, %rax")
        self.out(f"add %{self.register()}, %r14")

    def operation(self):
        """One instruction or a few that define all flags but AF, or none."""
        rng, a, b = self.rng, self.register(), self.register()
        constant = rng.choice((1, 2, 7, 8, 100, 127, 128, 1000, 0x7fffffff, -1, -8, -128))
        where = self.memory("memory", 8 * rng.randrange(32))
        plain = rng.choice(("add", "sub", "xor", "and", "or", "cmp"))
        sort = rng.randrange(10)
        if sort == 0:
            self.push(f"%{a}")
            self.out(f"lea {constant}(%{b}), %{a}")
            self.pop(f"%{b}")
        elif sort == 1:
            self.new_flags()
        elif sort == 2:
            self.out(f"imul %{a}, %{b}", f"add ${constant}, %{b}")
        else:
            self.out(rng.choice((
                f"{plain} %{a}, %{b}", f"{plain} ${constant}, %{b}", f"test %{a}, %{b}",
                f"{rng.choice(('adc', 'sbb'))} %{a}, %{b}",
                f"{rng.choice(('inc', 'dec', 'neg', 'shl', 'shr', 'sar'))} %{b}",
                f"lea {constant}(%{a},%{b},{rng.choice((1, 2, 4, 8))}), %{self.register()}",
                f"{rng.choice(('add', 'sub', 'mov', 'xor'))} %{LOW[a]}, %{LOW[b]}",
                f"set{rng.choice(CONDITIONS)} %{BYTE[b]}", f"mov %{a}, %{b}",
                f"cmov{rng.choice(CONDITIONS)} %{a}, %{b}", f"mov %{a}, {where}",
                f"mov {where}, %{b}", f"{plain} %{a}, {where}", f"{plain} {where}, %{b}",
                f"incq {where}")))

    def new_flags(self):
        """By way of the stack, which a return behind it must not be taken to pop."""
        self.push(f"${0x202 | self.rng.getrandbits(12) & 0x8c5}")
        self.out("popfq")
        self.cfi("adjust_cfa_offset -8")

    def straight(self, at_most=6):
        for _ in range(self.rng.randrange(at_most)):
            self.operation()
        if self.rng.random() < 0.4:
            self.sum_up()

    # -- Ways out of blocks.

    def target(self, procedure, block):
        """A block behind this one."""
        return procedure.label(self.rng.randrange(block + 1, procedure.blocks))

    def ways(self, procedure, block):
        kinds = ["next", "branch", "branch", "branch", "random", "back", "counted", "counted",
                 "several", "call", "call", "call", "indirect", "table", "table", "odd", "early"]
        if procedure.can_be_entered_inside():
            kinds += ["tail", "inside"]
        if self.leaves_far:
            kinds.append("far")
        if self.faults and self.rng.random() < 0.1:
            self.faults -= 1
            kinds = ["fault"]
        kind = self.rng.choice(kinds)
        getattr(self, "way_" + kind)(procedure, block)

    def way_next(self, procedure, block):
        if self.rng.random() < 0.5:
            self.out(f"jmp {self.target(procedure, block)}")

    def way_branch(self, procedure, block):
        self.out(f"j{self.rng.choice(CONDITIONS)} {self.target(procedure, block)}")

    def way_random(self, procedure, block):
        self.bits()
        # Behind `bt` only CF is defined alike everywhere.
        self.out(f"bt ${self.rng.randrange(20, 60)}, %r15",
                 f"j{self.rng.choice(('b', 'ae'))} {self.target(procedure, block)}")
        self.out("cmp %rax, %rbx")

    def way_back(self, procedure, block):
        """To an earlier block or this one, as long as there is fuel."""
        on = self.new_label()
        self.out(f"decq {self.memory('fuel')}", f"js {on}")
        self.bits()
        self.out(f"test ${1 << self.rng.randrange(20, 30)}, %r15d",
                 f"j{self.rng.choice(('e', 'ne'))} "
                 f"{procedure.label(self.rng.randrange(0, block + 1))}")
        self.at(on)
        self.out("cmp %rcx, %rdx")

    def way_counted(self, _procedure, _block):
        """A loop of one block, counted by a register, in all the ways that registers move."""
        rng, counter = self.rng, self.register()
        turns, step = rng.randrange(1, 60), rng.choice((1, 1, 1, 2, 3, 8, 16, -1, -1, -4, -8))
        head = self.new_label()
        self.out(f"mov ${-turns * step}, %{counter}")
        if rng.random() < 0.3:
            self.out(f"decq {self.memory('fuel')}")
        self.at(head)
        for _ in range(rng.randrange(4)):
            self.without(counter)
        if rng.random() < 0.3:
            self.out(f"add %{counter}, %{self.register(counter)}")
        how = rng.randrange(4)
        if how == 0:
            self.out(f"lea {step}(%{counter}), %{counter}", f"test %{counter}, %{counter}")
        elif how == 1 and step == 1:
            self.out(f"inc %{counter}")
        elif how == 1 and step == -1:
            self.out(f"dec %{counter}")
        elif how == 2:
            self.out(f"sub ${-step}, %{counter}")
        else:
            self.out(f"add ${step}, %{counter}")
        self.out(f"jne {head}")
        if rng.random() < 0.5:
            self.out(f"add %{counter}, %r14")

    def without(self, kept):
        """One instruction that does not write a register."""
        a, b = self.register(), self.register(kept)
        self.out(self.rng.choice((f"add %{a}, %{b}", f"lea 3(%{a},%{b}), %{b}", f"xor %{a}, %{b}",
                                  f"mov %{a}, {self.memory('memory', 8)}", f"imul %{a}, %{b}",
                                  f"addq $3, {self.memory('memory', 8 * self.rng.randrange(32))}",
                                  f"adc $1, %{b}")))

    def way_several(self, _procedure, _block):
        """A loop of several blocks with a way out in its middle."""
        rng = self.rng
        counter = self.register()
        head, middle, done = self.new_label(), self.new_label(), self.new_label()
        self.out(f"mov ${rng.randrange(1, 40)}, %{LOW[counter]}")
        self.at(head)
        self.without(counter)
        self.out(f"cmp ${rng.randrange(1, 40)}, %{self.register(counter)}")
        self.out(f"j{rng.choice(CONDITIONS)} {middle}")
        self.without(counter)
        if rng.random() < 0.4:
            self.out(f"cmp $3, %{counter}", f"j{rng.choice(('e', 'b', 'l'))} {done}")
        self.at(middle)
        self.without(counter)
        self.out(f"{rng.choice(('sub $1,', 'dec'))} %{counter}", f"jne {head}")
        self.at(done)
        self.out("cmp %r8, %r9")

    def plain_callees(self):
        """Those that may be called and jumped to without more ado."""
        return [p for p in self.procedures if not p.wide and not p.skips]

    def way_call(self, _procedure, _block):
        callee = self.rng.choice(self.procedures)
        if callee.wide:
            self.out("lea -16(%rsp), %rsp")
            self.cfi("adjust_cfa_offset 16")
        self.out(f"call {callee.name}")
        if callee.wide:
            self.cfi("adjust_cfa_offset -16")
        if callee.skips:  # which comes back behind this
            self.out("ud2", ".byte 0x90")

    def table(self, entry, names):
        """One of these for each name; its label."""
        label = f"table_{len(self.data)}"
        self.data.append((label, [entry.format(name, label) for name in names]))
        return label

    def way_indirect(self, _procedure, _block):
        likely = self.plain_callees()
        names = [self.rng.choice(likely).name for _ in range(self.rng.choice((1, 2, 4, 8, 16)))]
        table = self.table(".quad {}", names)
        index = self.register()
        self.bits()
        self.out(f"mov %r15, %{index}", f"shr $33, %{index}",
                 f"and ${len(names) - 1}, %{LOW[index]}",
                 f"lea {table}(%rip), %r13")
        if self.rng.random() < 0.5:
            self.out(f"call *(%r13,%{index},8)")
        else:
            self.out(f"mov (%r13,%{index},8), %r13", "call *%r13")

    def way_table(self, procedure, block):
        """A switch, as compilers make them or otherwise."""
        rng, count = self.rng, self.rng.choice((2, 4, 8, 16, 32))
        targets = [self.target(procedure, block) for _ in range(count)]
        index = self.register()
        self.bits()
        self.out(f"mov %r15, %{index}", f"shr ${rng.randrange(30, 40)}, %{index}",
                 f"and ${count * rng.choice((1, 2)) - 1}, %{LOW[index]}")
        self.out(f"cmp ${count - 1}, %{LOW[index]}", f"ja {procedure.label(block + 1)}_odd")
        if rng.random() < 0.5:
            self.out(f"lea {self.table('.long {} - {}', targets)}(%rip), %r13")
            self.out(f"movslq (%r13,%{index},4), %{index}")
            # An addition's flags are the same in each run only where addresses are.
            adds = not self.position_independent and rng.random() < 0.7
            self.out(f"add %{index}, %r13" if adds else f"lea (%r13,%{index}), %r13")
            self.out(rng.choice(("", "notrack ")) + "jmp *%r13")
        else:
            self.out(f"lea {self.table('.quad {}', targets)}(%rip), %r13")
            if rng.random() < 0.5:
                self.out(f"jmp *(%r13,%{index},8)")
            else:
                self.out(f"mov (%r13,%{index},8), %r13", "jmp *%r13")
        self.at(f"{procedure.label(block + 1)}_odd")

    def way_odd(self, procedure, block):
        """What compilers do not make."""
        rng, on = self.rng, self.new_label()
        kind = rng.randrange(5)
        if kind == 0:
            self.out(f"lea {self.target(procedure, block)}(%rip), %r13", "push %r13", "ret")
        elif kind == 1:
            self.out(f"call {on}")
            self.at(on)
            self.cfi("adjust_cfa_offset 8")
            self.pop("%r13")
        elif kind == 2:
            self.out(f"mov ${rng.randrange(1, 9)}, %ecx")
            self.at(on)
            self.without("rcx")
            self.out(f"loop {on}")
            self.out("cmp %rdx, %rsi")
        elif kind == 3:
            near = self.new_label()
            self.out("and $3, %ecx", f"jrcxz {near}", f"jmp {on}")
            self.at(near)
            self.out(f"jmp {self.target(procedure, block)}")
            self.at(on)
        else:
            self.out(f"lea {on}(%rip), %r13", "jmp *%r13")
            self.at(on)

    def way_far(self, _procedure, _block):
        """Now and then all procedures up to the outermost are left."""
        self.out("call far")

    def way_fault(self, _procedure, _block):
        """A signal's handler goes on behind it."""
        self.out("ud2")

    def way_early(self, procedure, _block):
        on = self.new_label()
        self.out(f"j{self.rng.choice(CONDITIONS)} {on}")
        if self.described:
            self.lines.append("  .cfi_remember_state")
        self.leave(procedure)
        if self.described:
            self.lines.append("  .cfi_restore_state")
        self.at(on)

    def way_tail(self, _procedure, _block):
        callee = self.rng.choice(self.plain_callees())
        if self.rng.random() < 0.5:
            self.out(f"j{self.rng.choice(CONDITIONS)} {callee.name}")
        else:
            self.out(f"jmp {callee.name}")

    def way_inside(self, procedure, block):
        """Into the middle of another procedure, in which it may go round: only with fuel."""
        others = [p for p in self.procedures if p.can_be_entered_inside() and p is not procedure]
        if not others:
            return self.way_branch(procedure, block)
        other = self.rng.choice(others)
        self.out(f"decq {self.memory('fuel')}", f"js {self.target(procedure, block)}",
                 f"j{self.rng.choice(CONDITIONS)} {other.label(self.rng.randrange(other.blocks))}")
        return None

    # -- Procedures.

    def enter(self, procedure):
        if procedure.skips_early:
            self.out("addq $3, (%rsp)")
        if procedure.saves:
            self.push("%rbx")
            self.push("%rbp")
        if procedure.frame:
            self.out(f"lea -{procedure.frame}(%rsp), %rsp")
            self.cfi(f"adjust_cfa_offset {procedure.frame}")

    def leave_frame(self, procedure):
        if procedure.frame:
            self.out(f"lea {procedure.frame}(%rsp), %rsp")
            self.cfi(f"adjust_cfa_offset -{procedure.frame}")
        if procedure.saves:
            self.pop("%rbp")
            self.pop("%rbx")

    def leave(self, procedure):
        self.leave_frame(procedure)
        if procedure.skips and not procedure.skips_early:
            self.out("addq $3, (%rsp)")
        if procedure.skips:
            self.out("cmp %rax, %rdx")
        if self.rng.random() < 0.2:
            self.new_flags()
        self.out("ret $16" if procedure.wide else "ret")

    def end(self, procedure):
        self.at(f".Lleave_{procedure.name}")
        self.leave(procedure)

    def procedure(self, procedure):
        self.lines += [f"  .p2align {self.rng.choice((0, 4, 4, 5))}",
                       f"  .type {procedure.name}, @function", procedure.name + ":"]
        self.described = self.all_described or procedure.described
        if self.described:
            self.lines.append("  .cfi_startproc")
        self.enter(procedure)
        self.out(f"decq {self.memory('fuel')}", f"js .Lleave_{procedure.name}")
        for block in range(procedure.blocks):
            self.at(procedure.label(block))
            self.straight()
            if block + 1 < procedure.blocks:
                self.ways(procedure, block)
        self.end(procedure)
        if self.described:
            self.lines.append("  .cfi_endproc")
        if self.sized:
            self.lines.append(f"  .size {procedure.name}, .-{procedure.name}")

    def far(self):
        """Comes back, but for each fiftieth time."""
        self.lines += ["  .type far, @function", "far:", "  .cfi_startproc"]
        self.out(f"decq {self.memory('left')}", "je 1f", "cmp %rcx, %rdx", "ret")
        self.lines.append("1:")
        self.out(f"movq $50, {self.memory('left')}", f"mov {self.memory('outermost')}, %rsp",
                 "lea .Lagain(%rip), %r13", "jmp *%r13")
        self.lines += ["  .cfi_endproc", "  .size far, .-far"]

    def text(self):
        saved = ("rbx", "rbp", "r12", "r13", "r14", "r15")
        self.lines += ["  .text", "  .globl flow", "  .type flow, @function", "flow:",
                       "  .cfi_startproc"]
        for register in saved:
            self.out(f"push %{register}")
            self.lines.append("  .cfi_adjust_cfa_offset 8")
        self.out("mov %rdi, %r15", f"mov %rsi, {self.memory('fuel')}", "xor %r14d, %r14d")
        for number, register in enumerate(FREE):
            self.out(f"mov ${number * 77}, %{LOW[register]}")
        self.out(f"mov %rsp, {self.memory('outermost')}", f"movq $50, {self.memory('left')}")
        self.at(".Lagain")
        for procedure in self.plain_callees():
            self.out(f"call {procedure.name}")
        self.out(f"cmpq $0, {self.memory('fuel')}", "jg .Lagain", "mov %r14, %rax",
                 "add %r15, %rax")
        for register in reversed(saved):
            self.out(f"pop %{register}")
            self.lines.append("  .cfi_adjust_cfa_offset -8")
        self.out("ret")
        self.lines += ["  .cfi_endproc", "  .size flow, .-flow"]
        if self.leaves_far:
            self.far()
        for procedure in self.procedures:
            self.procedure(procedure)
        self.lines += ['  .section .data.rel.ro,"aw"', "  .p2align 3"]
        for label, entries in self.data:
            self.lines.append(label + ":")
            self.lines += ["  " + entry for entry in entries]
            self.lines.append("  .p2align 3")
        section = '  .section .tbss,"awT",@nobits' if self.threads else "  .bss"
        self.lines += [section, "fuel: .zero 8", "memory: .zero 256", "outermost: .zero 8",
                       "left: .zero 8",
                       '  .section .note.GNU-stack,"",@progbits']
        return "\n".join(self.lines) + "\n"
