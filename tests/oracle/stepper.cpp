// The oracle: counts every instruction of a small program by single-stepping it.
//
//   stepper -o PREFIX [--limit=N] [--deny-rseq] [--cpu=N] [--order] -- PROGRAM ARGS...
//
// It shares no code with Tally and does not decode instructions beyond the few classes below, so
// that an error of the translator cannot be repeated here.  The processor says which instruction
// ran next; we only write it down.  Files are written, with link addresses in hex:
//
//   PREFIX.instructions.csv   module,address,count
//   PREFIX.edges.csv          from_module,from,to_module,to,count,class   (class of `from`)
//   PREFIX.calls.csv          module,address,count    calls at `address` that came back by a
//   return,
//                                                      or by a jump with the return address popped
//   PREFIX.ends.csv           module,address,count    arrivals at `address` that did not complete
//                             it: the thread died, or a signal's handler did not come back to it
//   PREFIX.threads.csv        count                   of each thread, in no order
//   PREFIX.order.csv          module,address          with --order: one instruction after the other
//
// What counts as executed:
//   * an instruction that completed.  One that faulted did not.
//   * a `rep` string instruction once, however many iterations (each is one step with rip
//     unchanged), and once when its count is zero.
//   * a `syscall` as soon as it was entered: the last instruction of a program is the `syscall` of
//     exit_group, and the one of a thread that sits in futex() when the others exit counts too.
//   * `int3` (a trap: rip is already behind it).
// Transitions into a signal handler and out of rt_sigreturn are not recorded as edges.  A handler
// that returns to where its signal struck leaves no trace.  If it goes elsewhere, or never returns,
// then the arrival at the interrupted instruction is an end; behind a system call, the transition
// out of it is taken back instead: control did not try to go on.  Nor does a trap (int3) lead on to
// the instruction behind it: its handler does.
//
// Tracing must not show.  TF leaks in two ways that are mended here: `pushf` stores it and
// `syscall` copies it to r11.  `mov ss` delays the trap by one instruction; both are counted.
// The kernel forces SIGTRAP upon a program that blocks or ignores it by unblocking it and resetting
// its handler.  So SIGTRAP is never really blocked or ignored here: rt_sigprocmask and rt_sigaction
// are given changed arguments, and the program reads back what it set.  (Masks of handlers that
// contain SIGTRAP are not treated so.)
// --deny-rseq answers rseq() with ENOSYS, as Tally does, because glibc takes another path then.
//
// Threads are followed; forked children run natively and are not counted.  exec() by the program
// itself continues under the same counts.  A program that sets TF itself is not supported.
//
// A stop costs 25 us when both processes share a processor and up to 100 us when they do not, so
// the oracle pins itself and the program to one.

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
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "classify.h"
#include "modules.h"

namespace {

using oracle::Class;
using oracle::Classified;
using oracle::Modules;

constexpr uint64_t kTrapFlag = 0x100;
constexpr uint64_t kCpuidBytes = 2;
constexpr int kTrapBrkpt = 1;             // si_code of the trap at the end of a system call
constexpr int kHandlerEntered = SIGTRAP;  // si_code of the stop at a handler's first instruction
constexpr int kTrapTrace = 2;

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "stepper: %s: %s\n", what, strerror(errno));
  exit(125);
}

struct Instruction {
  int module = 0;
  uint64_t link = 0;
  Class kind = Class::kOther;
  uint64_t count = 0;
  uint64_t calls_returned = 0;
  uint64_t ends = 0;  // threads that arrived here and died
};

// What the program believes about SIGTRAP while the kernel is told otherwise.
constexpr uint64_t kTrapBit = 1u << (SIGTRAP - 1);
struct KernelAction {
  uint64_t handler = 0, flags = 0, restorer = 0, mask = 0;
};

// A system call whose arguments were changed, until it has ended.
struct Changed {
  enum class What : uint8_t { kNothing, kMask, kAction } what = What::kNothing;
  uint64_t set = 0, old = 0;  // pointers of the program
  uint64_t word = 0;          // kMask: the set as the program has it in memory
  bool old_blocked = false;   // kMask: was SIGTRAP blocked, as the program sees it
  bool query = false;         // kAction: the call was made to ask only, `set` is to be put back
  KernelAction action{};      // kAction: what the program wanted to set
};

struct OpenCall {
  uint32_t instruction = 0;
  uint64_t return_address = 0, stack_pointer = 0;
};

struct Here {
  uint32_t id = 0;
  Classified classified;
  bool writable = false;
  bool is_cpuid = false;
};

// A signal whose handler has not returned.
struct Interrupted {
  uint64_t address = 0;  // where the handler is to return to
  uint32_t id = 0;       // the instruction there
  uint64_t edge = 0;     // the way out of a system call; 0 for anything else
};

struct Thread {
  uint64_t count = 0;               // instructions executed
  bool behind_system_call = false;  // and nothing else has been executed since
  Interrupted interrupted;
  std::map<uint64_t, Interrupted> open_handlers;  // by address of the kernel's context
  uint64_t last_edge = 0;                         // from << 32 | to
  bool only_arrived = false;                      // by a signal, and nothing has been tried since
  bool started = false;
  uint64_t address = 0;  // of the instruction that the next step executes
  Here here;
  uint64_t stack_pointer = 0, system_call = 0;
  std::vector<OpenCall> open_calls;
  bool trap_blocked = false;  // as the program sees it
  Changed changed;
};

class Stepper {
 public:
  Stepper(std::string prefix, uint64_t limit, bool deny_rseq, bool in_order)
      : prefix_(std::move(prefix)), limit_(limit), deny_rseq_(deny_rseq), in_order_(in_order) {}

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
              modules_.name(b.module).c_str(), b.link, count, oracle::name_of(a.kind));
    }
    finish(f);
    f = create("calls", "module,address,count");
    for (const Instruction& i : instructions_)
      if (i.kind == Class::kCall)
        fprintf(f, "%s,0x%lx,%lu\n", modules_.name(i.module).c_str(), i.link, i.calls_returned);
    finish(f);
    f = create("threads", "count");
    for (auto& [tid, thread] : threads_) totals_.push_back(thread.count);
    for (uint64_t count : totals_) fprintf(f, "%lu\n", count);
    finish(f);
    if (in_order_) {
      f = create("order", "module,address");
      for (uint32_t id : order_) {
        const Instruction& i = instructions_[id];
        fprintf(f, "%s,0x%lx\n", modules_.name(i.module).c_str(), i.link);
      }
      finish(f);
    }
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
    if (got > 0) h.classified = oracle::classify(bytes, size_t(got));
    h.is_cpuid = got >= ssize_t(kCpuidBytes) && bytes[0] == 0x0f && bytes[1] == 0xa2;
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
    t.only_arrived = false;
  }

  // Where a virtual machine's host executes cpuid in its stead and forgets that it is a step, the
  // trap comes behind the next instruction.
  void behind_cpuid(pid_t tid, Thread& t, const user_regs_struct& later) {
    if (later.rip == t.address + kCpuidBytes) return;
    user_regs_struct regs = later;
    regs.rip = t.address + kCpuidBytes;
    regs.rsp = t.stack_pointer;
    completed(tid, t, regs);
    arrive(tid, t, regs);
    if (t.here.classified.kind == Class::kSyscall) die("a system call right behind cpuid");
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
    if (t.here.classified.kind == Class::kSyscall) before_system_call(tid, t);
    if (ptrace(PTRACE_SINGLESTEP, tid, 0, signal) != 0 && errno != ESRCH) die("PTRACE_SINGLESTEP");
  }

  void before_system_call(pid_t tid, Thread& t) {
    constexpr uint64_t kSigaction = 13, kSigprocmask = 14, kRseq = 334;
    if (deny_rseq_ && t.system_call == kRseq) {
      user_regs_struct regs = registers(tid);
      regs.rax = uint64_t(-1);  // no such system call: the kernel answers ENOSYS
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
      t.system_call = 0;
    } else if (t.system_call == kSigprocmask) {
      change_mask(tid, t);
    } else if (t.system_call == kSigaction) {
      change_action(tid, t);
    }
  }

  template <class T>
  bool read_memory(pid_t tid, uint64_t address, T* out) {
    iovec local{out, sizeof *out}, remote{reinterpret_cast<void*>(address), sizeof *out};
    return process_vm_readv(tid, &local, 1, &remote, 1, 0) == ssize_t(sizeof *out);
  }
  // Also into read-only pages, where a constant set may lie.
  template <class T>
  void write_memory(pid_t tid, uint64_t address, const T& value) {
    long words[sizeof value / sizeof(long)];
    memcpy(words, &value, sizeof value);
    for (size_t i = 0; i < sizeof value / sizeof(long); i++)
      ptrace(PTRACE_POKEDATA, tid, address + i * sizeof(long), words[i]);
  }

  void change_mask(pid_t tid, Thread& t) {
    const user_regs_struct regs = registers(tid);
    Changed c{.what = Changed::What::kMask, .set = regs.rsi, .old = regs.rdx};
    c.old_blocked = t.trap_blocked;
    if (c.set && !read_memory(tid, c.set, &c.word)) return;  // the kernel will refuse it, too
    if (c.set) {
      bool named = c.word & kTrapBit;
      if (regs.rdi == SIG_SETMASK) t.trap_blocked = named;
      if (named && regs.rdi != SIG_SETMASK) t.trap_blocked = regs.rdi == SIG_BLOCK;
      write_memory(tid, c.set, c.word & ~kTrapBit);
    }
    t.changed = c;
  }

  void change_action(pid_t tid, Thread& t) {
    user_regs_struct regs = registers(tid);
    if (regs.rdi != SIGTRAP) return;
    Changed c{.what = Changed::What::kAction, .set = regs.rsi, .old = regs.rdx};
    if (c.set && !read_memory(tid, c.set, &c.action)) return;
    if (c.set && c.action.handler == uint64_t(SIG_IGN)) {
      c.query = true;
      regs.rsi = 0;
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
    }
    t.changed = c;
  }

  void restore_changed(pid_t tid, Thread& t, user_regs_struct& regs) {
    const Changed c = t.changed;
    t.changed = {};
    if (c.what == Changed::What::kMask) {
      uint64_t old = 0;
      bool answered = c.old && read_memory(tid, c.old, &old);
      if (c.set) write_memory(tid, c.set, c.word);
      if (answered) write_memory(tid, c.old, old | (c.old_blocked ? kTrapBit : 0));
    }
    if (c.what == Changed::What::kAction) {
      if (c.old && ignored_) write_memory(tid, c.old, *ignored_);
      if (c.set) ignored_.reset();
      if (c.query) {
        ignored_ = c.action;
        regs.rsi = c.set;
        ptrace(PTRACE_SETREGS, tid, 0, &regs);
      }
    }
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
      // Between a delivered signal and its first step a system call may report its end twice.  A
      // step of any other instruction whose cause was lost (virtual machines do that, once in ten
      // million) looks like that, but has moved on.
      bool system_call_end = info.si_code == kTrapBrkpt;
      bool is_system_call = t.here.classified.kind == Class::kSyscall;
      bool moved = regs.rip != t.address;
      if (t.here.is_cpuid && moved) behind_cpuid(tid, t, regs);
      if (!system_call_end || is_system_call || moved) completed(tid, t, regs);
      arrive(tid, t, regs);
      resume(tid, t, 0);
      return;
    }
    if (signal == SIGTRAP && info.si_code == kHandlerEntered) {
      Interrupted& slot = t.open_handlers[regs.rsp + 8];
      if (slot.address) abandoned(slot);
      slot = t.interrupted;
      t.behind_system_call = false;
      arrive(tid, t, regs);
      resume(tid, t, 0);
      return;
    }
    // A signal for the program.  A fault leaves rip at the instruction; a trap (int3) or a system
    // call that was not restarted has moved on.
    // Should the thread die of it, control never tried to go on: that way out is taken back.
    const bool fault =
        info.si_code > 0 && (signal == SIGSEGV || signal == SIGBUS || signal == SIGFPE ||
                             signal == SIGILL || signal == SIGTRAP);
    t.interrupted = {};
    if (regs.rip != t.address) {
      t.last_edge = 0;
      completed(tid, t, regs);
      if (fault && t.last_edge != 0) edges_[t.last_edge]--, t.last_edge = 0;
    }
    arrive(tid, t, regs);
    if (t.behind_system_call && !fault) t.interrupted.edge = t.last_edge;
    t.only_arrived = !fault;
    t.interrupted.address = regs.rip;
    t.interrupted.id = t.here.id;
    resume(tid, t, signal);
  }

  void abandoned(const Interrupted& interrupted) {
    if (interrupted.edge != 0) {
      edges_[interrupted.edge]--;
    } else {
      instructions_[interrupted.id].ends++;
    }
  }

  // `t.stack_pointer` is where the kernel found its context.
  void handler_returned(Thread& t, uint64_t address) {
    auto it = t.open_handlers.find(t.stack_pointer);
    if (it == t.open_handlers.end()) return;
    if (it->second.address != address) abandoned(it->second);
    t.open_handlers.erase(it);
  }

  void ended(pid_t tid) {
    Thread& t = threads_[tid];
    for (auto& [context, interrupted] : t.open_handlers) abandoned(interrupted);
    if (t.started && t.only_arrived) {
      if (t.last_edge != 0) edges_[t.last_edge]--;
    } else if (t.started) {
      if (t.here.classified.kind == Class::kSyscall) {
        count(t, t.here.id);
      } else {
        instructions_[t.here.id].ends++;
      }
    }
    totals_.push_back(t.count);
    threads_.erase(tid);
  }

  void count(Thread& t, uint32_t id) {
    instructions_[id].count++;
    t.count++;
    if (in_order_) order_.push_back(id);
  }

  // The instruction at t.address has run and `regs` is what came of it.
  void completed(pid_t tid, Thread& t, user_regs_struct& regs) {
    Class kind = t.here.classified.kind;
    if (kind == Class::kRep && regs.rip == t.address) return;  // one iteration of several
    if (kind == Class::kPushf) hide_trap_flag(tid, regs.rsp);
    uint32_t from = t.here.id;
    count(t, from);
    if (kind == Class::kMovSs) {
      uint64_t second_address = t.address + t.here.classified.length;
      if (regs.rip != second_address) {
        Here second = look_up(tid, second_address);
        add_edge(from, second.id);
        count(t, second.id);
        from = second.id;
        kind = second.classified.kind;
      }
    }
    if (kind == Class::kSyscall && regs.r11 & kTrapFlag) {
      regs.r11 &= ~kTrapFlag;
      ptrace(PTRACE_SETREGS, tid, 0, &regs);
    }
    if (kind == Class::kSyscall) restore_changed(tid, t, regs);
    t.behind_system_call = kind == Class::kSyscall && t.system_call != 15;
    if (kind == Class::kSyscall && t.system_call == 15) handler_returned(t, regs.rip);
    if (kind == Class::kSyscall && after_system_call(tid, t)) return;
    Here to = look_up(tid, regs.rip);
    // A jump to memory that is no code will fault: no edge of a program.
    if (instructions_[to.id].module < 0 || modules_.is_data(regs.rip)) return;
    add_edge(from, to.id);
    t.last_edge = uint64_t(from) << 32 | to.id;
    if (kind == Class::kCall) open_call(tid, t, from, regs.rsp);
    if (kind == Class::kReturn) close_call(t, regs.rip, t.stack_pointer);
    if (kind == Class::kIndirect && has_popped_return(t)) {
      instructions_[from].kind = Class::kReturn;
      close_call(t, regs.rip, t.stack_pointer - sizeof(uint64_t));
    }
  }

  // Whether the return address of the innermost call has just been popped: a jump is a return then.
  static bool has_popped_return(const Thread& t) {
    return !t.open_calls.empty() &&
           t.open_calls.back().stack_pointer == t.stack_pointer - sizeof(uint64_t);
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
    behind_call_[uint64_t(pushed)] = instruction;
  }

  // `sp` is rsp before the return: frames below it were abandoned.
  void close_call(Thread& t, uint64_t target, uint64_t sp) {
    auto& open = t.open_calls;
    while (!open.empty() && open.back().stack_pointer < sp) open.pop_back();
    if (!open.empty() && open.back().stack_pointer == sp) open.pop_back();
    // A call has come back when a return goes to the address behind it, however that was arranged.
    auto behind = behind_call_.find(target);
    if (behind != behind_call_.end()) instructions_[behind->second].calls_returned++;
  }

  void hide_trap_flag(pid_t tid, uint64_t sp) {
    errno = 0;
    long flags = ptrace(PTRACE_PEEKDATA, tid, sp, 0);
    if (errno == 0) ptrace(PTRACE_POKEDATA, tid, sp, flags & ~long(kTrapFlag));
  }

  std::unordered_map<uint64_t, uint32_t> behind_call_;  // return address -> call
  std::string prefix_;
  uint64_t limit_ = 0, steps_ = 0;
  bool deny_rseq_ = false;
  bool in_order_;
  std::vector<uint32_t> order_;  // what was counted, one after the other
  pid_t leader_ = 0;
  Modules modules_;
  std::optional<KernelAction> ignored_;  // SIGTRAP as the program set it, when it ignores it
  std::unordered_map<uint64_t, Here> known_;
  std::map<std::pair<int, uint64_t>, uint32_t> ids_;
  std::vector<Instruction> instructions_;
  std::unordered_map<uint64_t, uint64_t> edges_;
  std::map<pid_t, Thread> threads_;
  std::vector<uint64_t> totals_;  // of the threads that have ended
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
  bool deny_rseq = false, in_order = false;
  int cpu = sched_getcpu(), i = 1;
  for (; i < argc && strcmp(argv[i], "--"); i++) {
    if (!strcmp(argv[i], "-o") && i + 1 < argc) {
      prefix = argv[++i];
    } else if (!strncmp(argv[i], "--limit=", 8)) {
      limit = strtoull(argv[i] + 8, nullptr, 10);
    } else if (!strcmp(argv[i], "--deny-rseq")) {
      deny_rseq = true;
    } else if (!strcmp(argv[i], "--order")) {
      in_order = true;
    } else if (!strncmp(argv[i], "--cpu=", 6)) {
      cpu = atoi(argv[i] + 6);  // -1: do not pin
    } else {
      fprintf(stderr, "stepper: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (prefix.empty() || i + 1 >= argc) {
    fprintf(stderr,
            "usage: stepper -o PREFIX [--limit=N] [--deny-rseq] [--cpu=N] [--order] -- PROGRAM "
            "...\n");
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
  Stepper stepper(prefix, limit, deny_rseq, in_order);
  int status = stepper.run(pid);
  stepper.write();
  end_as(status);
}
