// The oracle: counts every instruction of a small program by single-stepping it.
//
//   stepper -o PREFIX [--limit=N] [--deny-rseq] [--cpu=N] -- PROGRAM ARGS...
//
// It shares no code with Tally and does not decode instructions beyond the few classes below, so
// that an error of the translator cannot be repeated here.  The processor says which instruction
// ran next; we only write it down.  Three files are written, with link addresses in hex:
//
//   PREFIX.instructions.csv   module,address,count
//   PREFIX.edges.csv          from_module,from,to_module,to,count,class   (class of `from`)
//   PREFIX.calls.csv          module,address,count    calls at `address` that came back by a return
//   PREFIX.ends.csv           module,address,count    threads that died before completing `address`
//
// What counts as executed:
//   * an instruction that completed.  One that faulted did not.
//   * a `rep` string instruction once, however many iterations (each is one step with rip
//     unchanged), and once when its count is zero.
//   * a `syscall` as soon as it was entered: the last instruction of a program is the `syscall` of
//     exit_group, and the one of a thread that sits in futex() when the others exit counts too.
//   * `int3` (a trap: rip is already behind it).
// Transitions into a signal handler and out of rt_sigreturn are not recorded as edges.
//
// Tracing must not show.  TF leaks in two ways that are mended here: `pushf` stores it and
// `syscall` copies it to r11.  `mov ss` delays the trap by one instruction; both are counted.
// --deny-rseq answers rseq() with ENOSYS, as Tally does, because glibc takes another path then.
//
// Threads are followed; forked children run natively and are not counted.  exec() by the program
// itself continues under the same counts.  A program that sets TF itself is not supported.
//
// A stop costs 25 us when both processes share a processor and up to 100 us when they do not, so
// the oracle pins itself and the program to one.

#include <elf.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr uint64_t kTrapFlag = 0x100;
constexpr int kTrapBrkpt = 1;             // si_code of the trap at the end of a system call
constexpr int kHandlerEntered = SIGTRAP;  // si_code of the stop at a handler's first instruction
constexpr int kTrapTrace = 2;

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
  exit(125);
}

enum class Class : uint8_t {
  kOther,
  kBranch,
  kIndirect,
  kCall,
  kReturn,
  kSyscall,
  kRep,
  kPushf,
  kMovSs,
  kInt3,
};

const char* name_of(Class c) {
  switch (c) {
    case Class::kBranch:
      return "branch";
    case Class::kIndirect:
      return "indirect";
    case Class::kCall:
      return "call";
    case Class::kReturn:
      return "ret";
    case Class::kSyscall:
      return "syscall";
    default:
      return "other";
  }
}

struct Classified {
  Class kind = Class::kOther;
  unsigned length = 0;  // only for kMovSs
};

unsigned modrm_length(const uint8_t* p) {
  unsigned mod = p[0] >> 6, rm = p[0] & 7;
  if (mod == 3) return 1;
  unsigned n = 1;
  if (rm == 4) {
    n++;
    if (mod == 0 && (p[1] & 7) == 5) return n + 4;
  } else if (mod == 0 && rm == 5) {
    return n + 4;
  }
  return n + (mod == 1 ? 1 : mod == 2 ? 4 : 0);
}

Classified classify(const uint8_t* bytes, size_t size) {
  size_t i = 0;
  bool rep = false;
  for (; i < size; i++) {
    uint8_t b = bytes[i];
    if (b == 0xf2 || b == 0xf3) rep = true;
    bool prefix = b == 0x66 || b == 0x67 || b == 0xf2 || b == 0xf3 || b == 0xf0 || b == 0x2e ||
                  b == 0x36 || b == 0x3e || b == 0x26 || b == 0x64 || b == 0x65;
    if (!prefix) break;
  }
  if (i < size && (bytes[i] & 0xf0) == 0x40) i++;
  if (i + 1 >= size) return {};
  uint8_t op = bytes[i], next = bytes[i + 1];
  unsigned reg = (next >> 3) & 7;
  if (op == 0x0f) {
    if (next == 0x05) return {Class::kSyscall};
    if ((next & 0xf0) == 0x80) return {Class::kBranch};
    return {};
  }
  bool string =
      (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf) || (op >= 0x6c && op <= 0x6f);
  if (string && rep) return {Class::kRep};
  if ((op & 0xf0) == 0x70 || op == 0xe9 || op == 0xeb || (op >= 0xe0 && op <= 0xe3))
    return {Class::kBranch};
  if (op == 0xe8 || (op == 0xff && (reg == 2 || reg == 3))) return {Class::kCall};
  if (op == 0xff && (reg == 4 || reg == 5)) return {Class::kIndirect};
  if (op == 0xc2 || op == 0xc3 || op == 0xca || op == 0xcb || op == 0xcf) return {Class::kReturn};
  if (op == 0x9c) return {Class::kPushf};
  if (op == 0xcc || op == 0xf1 || op == 0xcd) return {Class::kInt3};
  if (op == 0x8e && reg == 2) return {Class::kMovSs, unsigned(i) + 1 + modrm_length(bytes + i + 1)};
  return {};
}

// Modules: where an address of the program lies in its file.

struct Mapping {
  uint64_t start = 0, end = 0, file_offset = 0;
  bool writable = false;
  std::string path;
};

struct LoadSegment {
  uint64_t file_offset = 0, file_size = 0, link_address = 0;
};

std::vector<LoadSegment> load_segments(const std::string& path) {
  std::vector<LoadSegment> out;
  int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return out;
  Elf64_Ehdr eh;
  if (pread(fd, &eh, sizeof eh, 0) == ssize_t(sizeof eh) && !memcmp(eh.e_ident, ELFMAG, SELFMAG)) {
    for (unsigned i = 0; i < eh.e_phnum; i++) {
      Elf64_Phdr ph;
      if (pread(fd, &ph, sizeof ph, off_t(eh.e_phoff + i * sizeof ph)) != ssize_t(sizeof ph)) break;
      if (ph.p_type == PT_LOAD) out.push_back({ph.p_offset, ph.p_filesz, ph.p_vaddr});
    }
  }
  close(fd);
  return out;
}

class Modules {
 public:
  void reread(pid_t pid) {
    mappings_.clear();
    std::string name = "/proc/" + std::to_string(pid) + "/maps";
    FILE* f = fopen(name.c_str(), "r");
    if (!f) return;  // the process is gone
    char line[8192];
    while (fgets(line, sizeof line, f)) {
      unsigned long start, end, offset;
      char perms[8];
      int at = 0;
      if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &start, &end, perms, &offset, &at) < 4)
        continue;
      std::string path = line + at;
      while (!path.empty() && path.back() == '\n') path.pop_back();
      mappings_.push_back({start, end, offset, perms[1] == 'w', path});
    }
    fclose(f);
  }

  // -1 when nothing is mapped there.
  int find(uint64_t address, uint64_t* link, bool* writable) {
    for (const Mapping& m : mappings_) {
      if (address < m.start || address >= m.end) continue;
      *writable = m.writable;
      *link = address;
      if (m.path.empty()) return id_of("[anonymous]");
      if (m.path == "[vdso]") *link = address - m.start;
      if (m.path[0] == '/') *link = link_address(m, address);
      return id_of(m.path);
    }
    return -1;
  }

  const std::string& name(int id) const { return names_[size_t(id)]; }

 private:
  int id_of(const std::string& path) {
    auto [it, fresh] = ids_.try_emplace(path, int(names_.size()));
    if (fresh) names_.push_back(path);
    return it->second;
  }

  uint64_t link_address(const Mapping& m, uint64_t address) {
    auto it = segments_.find(m.path);
    if (it == segments_.end()) it = segments_.emplace(m.path, load_segments(m.path)).first;
    uint64_t offset = address - m.start + m.file_offset;
    for (const LoadSegment& s : it->second)
      if (offset >= s.file_offset && offset < s.file_offset + s.file_size)
        return offset - s.file_offset + s.link_address;
    return address;
  }

  std::vector<Mapping> mappings_;
  std::vector<std::string> names_;
  std::map<std::string, int> ids_;
  std::map<std::string, std::vector<LoadSegment>> segments_;
};

struct Instruction {
  int module = 0;
  uint64_t link = 0;
  Class kind = Class::kOther;
  uint64_t count = 0;
  uint64_t calls_returned = 0;
  uint64_t ends = 0;  // threads that arrived here and died
};

struct OpenCall {
  uint32_t instruction = 0;
  uint64_t return_address = 0, stack_pointer = 0;
};

struct Here {
  uint32_t id = 0;
  Classified classified;
  bool writable = false;
};

struct Thread {
  bool started = false;
  uint64_t address = 0;  // of the instruction that the next step executes
  Here here;
  uint64_t stack_pointer = 0, system_call = 0;
  std::vector<OpenCall> open_calls;
};

class Stepper {
 public:
  Stepper(std::string prefix, uint64_t limit, bool deny_rseq)
      : prefix_(std::move(prefix)), limit_(limit), deny_rseq_(deny_rseq) {}

  // Steps the program to its end; the wait status of the leader is returned.
  int run(pid_t leader) {
    leader_ = leader;
    int status = 0;
    if (waitpid(leader, &status, 0) != leader || !WIFSTOPPED(status)) die("program did not start");
    if (ptrace(PTRACE_SETOPTIONS, leader, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACECLONE) != 0)
      die("PTRACE_SETOPTIONS");
    arrive_first(leader, threads_[leader]);
    resume(leader, threads_[leader], 0);
    for (;;) {
      pid_t tid = waitpid(-1, &status, __WALL);
      if (tid < 0) die("waitpid");
      if (WIFEXITED(status) || WIFSIGNALED(status)) {
        ended(tid);
        if (tid == leader) return status;
      } else if (WIFSTOPPED(status)) {
        stopped(tid, status);
      }
    }
  }

  void write() {
    FILE* f = create("instructions", "module,address,count");
    for (const Instruction& i : instructions_)
      if (i.count) fprintf(f, "%s,0x%lx,%lu\n", modules_.name(i.module).c_str(), i.link, i.count);
    finish(f);
    f = create("edges", "from_module,from,to_module,to,count,class");
    for (auto& [key, count] : edges_) {
      const Instruction &a = instructions_[key >> 32], &b = instructions_[uint32_t(key)];
      fprintf(f, "%s,0x%lx,%s,0x%lx,%lu,%s\n", modules_.name(a.module).c_str(), a.link,
              modules_.name(b.module).c_str(), b.link, count, name_of(a.kind));
    }
    finish(f);
    f = create("calls", "module,address,count");
    for (const Instruction& i : instructions_)
      if (i.kind == Class::kCall)
        fprintf(f, "%s,0x%lx,%lu\n", modules_.name(i.module).c_str(), i.link, i.calls_returned);
    finish(f);
    f = create("ends", "module,address,count");
    for (const Instruction& i : instructions_)
      if (i.ends && i.module >= 0)
        fprintf(f, "%s,0x%lx,%lu\n", modules_.name(i.module).c_str(), i.link, i.ends);
    finish(f);
  }

 private:
  FILE* create(const char* what, const char* header) {
    FILE* f = fopen((prefix_ + "." + what + ".csv").c_str(), "w");
    if (!f) die("cannot create output");
    fprintf(f, "%s\n", header);
    return f;
  }
  void finish(FILE* f) {
    if (fclose(f) != 0) die("cannot write output");
  }

  user_regs_struct registers(pid_t tid) {
    user_regs_struct regs{};
    if (ptrace(PTRACE_GETREGS, tid, 0, &regs) != 0 && errno != ESRCH) die("PTRACE_GETREGS");
    return regs;
  }

  Here look_up(pid_t tid, uint64_t address) {
    auto it = known_.find(address);
    if (it != known_.end() && !it->second.writable) return it->second;
    Here h;
    uint64_t link = address;
    int module = modules_.find(address, &link, &h.writable);
    if (module < 0) {
      modules_.reread(tid);
      module = modules_.find(address, &link, &h.writable);
    }
    uint8_t bytes[16] = {};
    iovec local{bytes, sizeof bytes}, remote{reinterpret_cast<void*>(address), sizeof bytes};
    // At the end of a mapping fewer bytes can be read; the kernel then reads up to the page's end
    // only when asked separately.
    ssize_t got = process_vm_readv(tid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      local.iov_len = remote.iov_len = 4096 - (address & 4095) < 16 ? 4096 - (address & 4095) : 16;
      got = process_vm_readv(tid, &local, 1, &remote, 1, 0);
    }
    if (got > 0) h.classified = classify(bytes, size_t(got));
    if (module < 0) {
      h.id = intern(-1, address);  // a jump to nowhere: it will fault and never count
      return h;
    }
    h.id = intern(module, link);
    instructions_[h.id].kind = h.classified.kind;
    known_[address] = h;
    return h;
  }

  uint32_t intern(int module, uint64_t link) {
    auto [it, fresh] = ids_.try_emplace({module, link}, uint32_t(instructions_.size()));
    if (fresh) instructions_.push_back({module, link});
    return it->second;
  }

  void arrive(pid_t tid, Thread& t, const user_regs_struct& regs) {
    t.address = regs.rip;
    t.stack_pointer = regs.rsp;
    t.system_call = regs.rax;
    t.here = look_up(tid, regs.rip);
    t.started = true;
  }

  void arrive_first(pid_t tid, Thread& t) {
    user_regs_struct regs = registers(tid);
    if (regs.r11 & kTrapFlag) {
      regs.r11 &= ~kTrapFlag;
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
    }
    arrive(tid, t, regs);
  }

  void resume(pid_t tid, Thread& t, int signal) {
    if (++steps_ > limit_) {
      fprintf(stderr, "stepper: more than %lu steps\n", limit_);
      kill(leader_, SIGKILL);
      exit(124);
    }
    constexpr uint64_t kRseq = 334;
    if (deny_rseq_ && t.here.classified.kind == Class::kSyscall && t.system_call == kRseq) {
      user_regs_struct regs = registers(tid);
      regs.rax = uint64_t(-1);  // no such system call: the kernel answers ENOSYS
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
      t.system_call = 0;
    }
    if (ptrace(PTRACE_SINGLESTEP, tid, 0, signal) != 0 && errno != ESRCH) die("PTRACE_SINGLESTEP");
  }

  void stopped(pid_t tid, int status) {
    Thread& t = threads_[tid];
    int signal = WSTOPSIG(status);
    if (!t.started) {  // a new thread begins with SIGSTOP
      arrive_first(tid, t);
      resume(tid, t, 0);
      return;
    }
    if (status >> 16) {  // the clone event: the trap at the system call's end follows
      resume(tid, t, 0);
      return;
    }
    siginfo_t info{};
    if (ptrace(PTRACE_GETSIGINFO, tid, 0, &info) != 0) {
      if (errno == ESRCH) return;  // killed meanwhile; its end will be reported
      die("PTRACE_GETSIGINFO");
    }
    user_regs_struct regs = registers(tid);
    bool ours = signal == SIGTRAP && (info.si_code == kTrapTrace || info.si_code == kTrapBrkpt);
    if (ours) {
      // Between a delivered signal and its first step a system call may report its end twice.
      bool system_call_end = info.si_code == kTrapBrkpt;
      bool is_system_call = t.here.classified.kind == Class::kSyscall;
      if (!system_call_end || is_system_call) completed(tid, t, regs);
      arrive(tid, t, regs);
      resume(tid, t, 0);
      return;
    }
    if (signal == SIGTRAP && info.si_code == kHandlerEntered) {
      arrive(tid, t, regs);
      resume(tid, t, 0);
      return;
    }
    // A signal for the program.  A fault leaves rip at the instruction; a trap (int3) or a system
    // call that was not restarted has moved on.
    if (regs.rip != t.address) completed(tid, t, regs);
    arrive(tid, t, regs);
    resume(tid, t, signal);
  }

  void ended(pid_t tid) {
    Thread& t = threads_[tid];
    if (t.started) {
      Instruction& last = instructions_[t.here.id];
      (t.here.classified.kind == Class::kSyscall ? last.count : last.ends)++;
    }
    threads_.erase(tid);
  }

  // The instruction at t.address has run and `regs` is what came of it.
  void completed(pid_t tid, Thread& t, user_regs_struct& regs) {
    Class kind = t.here.classified.kind;
    if (kind == Class::kRep && regs.rip == t.address) return;  // one iteration of several
    if (kind == Class::kPushf) hide_trap_flag(tid, regs.rsp);
    uint32_t from = t.here.id;
    instructions_[from].count++;
    if (kind == Class::kMovSs) {
      uint64_t second_address = t.address + t.here.classified.length;
      if (regs.rip != second_address) {
        Here second = look_up(tid, second_address);
        add_edge(from, second.id);
        instructions_[second.id].count++;
        from = second.id;
        kind = second.classified.kind;
      }
    }
    if (kind == Class::kSyscall && regs.r11 & kTrapFlag) {
      regs.r11 &= ~kTrapFlag;
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
    }
    if (kind == Class::kSyscall && after_system_call(tid, t)) return;
    Here to = look_up(tid, regs.rip);
    if (instructions_[to.id].module < 0) return;
    add_edge(from, to.id);
    if (kind == Class::kCall) open_call(tid, t, from, regs.rsp);
    if (kind == Class::kReturn) close_call(t, regs.rip);
  }

  // True when control does not go on behind the system call.
  bool after_system_call(pid_t tid, Thread& t) {
    constexpr uint64_t kMmap = 9, kMprotect = 10, kMunmap = 11, kSigreturn = 15, kMremap = 25,
                       kExecve = 59, kShmat = 30, kShmdt = 67, kPkeyMprotect = 329;
    switch (t.system_call) {
      case kMmap:
      case kMprotect:
      case kMunmap:
      case kMremap:
      case kExecve:
      case kShmat:
      case kShmdt:
      case kPkeyMprotect:
        known_.clear();
        modules_.reread(tid);
        return t.system_call == kExecve;
      case kSigreturn:
        return true;
      default:
        return false;
    }
  }

  void add_edge(uint32_t from, uint32_t to) { edges_[uint64_t(from) << 32 | to]++; }

  void open_call(pid_t tid, Thread& t, uint32_t instruction, uint64_t sp) {
    errno = 0;
    long pushed = ptrace(PTRACE_PEEKDATA, tid, sp, 0);
    if (errno != 0) return;
    t.open_calls.push_back({instruction, uint64_t(pushed), sp});
  }

  // t.stack_pointer is rsp before the return: frames below it were abandoned.
  void close_call(Thread& t, uint64_t target) {
    auto& open = t.open_calls;
    while (!open.empty() && open.back().stack_pointer < t.stack_pointer) open.pop_back();
    if (open.empty() || open.back().stack_pointer != t.stack_pointer) return;
    if (open.back().return_address == target) {
      instructions_[open.back().instruction].calls_returned++;
    }
    open.pop_back();
  }

  void hide_trap_flag(pid_t tid, uint64_t sp) {
    errno = 0;
    long flags = ptrace(PTRACE_PEEKDATA, tid, sp, 0);
    if (errno == 0) ptrace(PTRACE_POKEDATA, tid, sp, flags & ~long(kTrapFlag));
  }

  std::string prefix_;
  uint64_t limit_ = 0, steps_ = 0;
  bool deny_rseq_ = false;
  pid_t leader_ = 0;
  Modules modules_;
  std::unordered_map<uint64_t, Here> known_;
  std::map<std::pair<int, uint64_t>, uint32_t> ids_;
  std::vector<Instruction> instructions_;
  std::unordered_map<uint64_t, uint64_t> edges_;
  std::map<pid_t, Thread> threads_;
};

void pin_to(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(unsigned(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

[[noreturn]] void end_as(int status) {
  if (WIFSIGNALED(status)) {
    rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(WTERMSIG(status), SIG_DFL);
    raise(WTERMSIG(status));
    _exit(128 + WTERMSIG(status));
  }
  _exit(WEXITSTATUS(status));
}

}  // namespace

int main(int argc, char** argv) {
  std::string prefix;
  uint64_t limit = 3'000'000;
  bool deny_rseq = false;
  int cpu = sched_getcpu(), i = 1;
  for (; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "-o") && i + 1 < argc) {
      prefix = argv[++i];
    } else if (!strncmp(argv[i], "--limit=", 8)) {
      limit = strtoull(argv[i] + 8, nullptr, 10);
    } else if (!strcmp(argv[i], "--deny-rseq")) {
      deny_rseq = true;
    } else if (!strncmp(argv[i], "--cpu=", 6)) {
      cpu = atoi(argv[i] + 6);  // -1: do not pin
    } else {
      fprintf(stderr, "stepper: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (prefix.empty() || i + 1 >= argc) {
    fprintf(stderr,
            "usage: stepper -o PREFIX [--limit=N] [--deny-rseq] [--cpu=N] -- PROGRAM ...\n");
    return 2;
  }
  pin_to(cpu);
  pid_t pid = fork();
  if (pid < 0) die("fork");
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[i + 1], argv + i + 1);
    fprintf(stderr, "stepper: %s: %s\n", argv[i + 1], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
  }
  Stepper stepper(prefix, limit, deny_rseq);
  int status = stepper.run(pid);
  stepper.write();
  end_as(status);
}
