// Handlers of signals: the program's own, entered and left as natively, seeing original addresses.
//
// Problem.  A signal may strike a thread anywhere in the code cache: between two instructions of
// the program, but also inside the code that stands for one of them, where registers are borrowed,
// or while the thread waits for the monitor.  The kernel saves what it finds; the program must find
// its own addresses and registers there.
//
// Idea.  The kernel is told nothing: handlers are installed by their original addresses.  When a
// signal that has a handler is about to be delivered, the thread is brought to a boundary between
// two instructions of the program, one step at a time (sequences are short; a request it has posted
// is answered on the spot).  Its registers are then replaced by the original ones, and it is
// stepped into the handler: the kernel builds a frame of original addresses.  The handler begins in
// the code cache, as if called from nowhere, and `rt_sigreturn` finds the way back
// (Service::before_sigreturn).
//
//   stopped in the cache -> boundary -> original registers -> kernel's frame -> handler's copy
//
// A system call that the signal interrupts is presented as the kernel expects it, behind the
// original `syscall`, so that its own rules decide between restarting it and EINTR.  A faulting
// instruction stands where its copy does; if it faults inside its sequence, the sequence is undone.
//
// A system call that the program's own filter traps (SIGSYS, seccomp.h) stands behind the original
// `syscall`, which is also the address that the handler is told; what the handler leaves in rax is
// the call's result.  The monitor forgets what it was going to do about that call.
//
// A signal that cannot be delivered right now (something else happened on the way to the boundary)
// is made pending again and recognized when it comes back.
#pragma once

#include <deque>
#include <map>
#include <optional>

#include "cache/code_cache.h"
#include "engine/service.h"
#include "ledger/ledger.h"
#include "tracee/process.h"

namespace tally::engine {

// A signal's place in the kernel's sets of them.
constexpr uint64_t bit_of(int signal) {
  return 1ull << (signal - 1);
}

class Signals {
 public:
  Signals(tracee::Process& process, Region& region, CodeCache& cache, Ledger& ledger,
          Service& service)
      : process_(process), region_(region), cache_(cache), ledger_(ledger), service_(service) {}

  // True if the signal is not the program's but comes from a return that read its number
  // unaligned; the thread goes on (alignment.cpp).
  bool is_of_alignment_checks(const tracee::Event& event);
  // What the program is to learn about a signal at its stop; false if there is nothing to deliver.
  bool admit(tracee::Event& event);
  // What becomes of a signal that is delivered now, as far as can be told.
  enum class Fate : uint8_t { kHandler, kEndsProcess, kHarmless };
  Fate fate_of(const tracee::Event& event);
  // Lets the handler of a thread in a signal stop begin, and resumes the thread.  If something else
  // happened to it, that event is returned, still to be handled.  Called under the service's mutex.
  Result<std::optional<tracee::Event>> deliver(const tracee::Event& event, uint32_t slot);
  void forget(pid_t tid);

  // What a stopped thread is in the program's own terms, for letting it go.
  struct Outside {
    user_regs_struct original{};
    Position position;
    bool ready = false;                  // else: another thread must go first, or ...
    std::optional<tracee::Event> other;  // ... this happened to it instead, still to be handled
  };
  // Brings a stopped thread to a boundary between two of the program's instructions.  Changes none
  // of its registers there.  Errors: there is none.
  Result<Outside> bring_out(pid_t tid, uint32_t slot) { return bring(tid, slot, Purpose::kLetGo); }
  // The same for a thread that goes on from there in the code cache: nothing is taken back, and who
  // waits for an answer is not ready.
  Result<Outside> bring_to_rest(pid_t tid, uint32_t slot) {
    return bring(tid, slot, Purpose::kRest);
  }

 private:
  enum class Purpose : uint8_t { kLetGo, kRest };
  Result<Outside> bring(pid_t tid, uint32_t slot, Purpose purpose);
  // A place where a thread can be interrupted.
  struct Point {
    user_regs_struct original{};
    Position position;
    CacheAddr resume;
    CacheAddr restart;
    bool cancels = false;  // a system call that the monitor had its hands in
    bool stepped = false;  // to get there
    // What has been counted in a sequence that is undone, and will be when it is made again.
    std::optional<uint32_t> counts_again;
  };
  std::optional<Point> point_at(const user_regs_struct& regs, uint32_t slot) const;
  std::optional<Point> point_in_gateway(const user_regs_struct& regs, uint32_t slot,
                                        const translate::GatewayCode& gateway) const;
  std::optional<Point> point_at_syscall(const user_regs_struct& regs, uint32_t slot) const;
  std::optional<Point> point_of_trap(const user_regs_struct& regs, uint32_t slot) const;
  std::optional<Point> point_of_fault(const user_regs_struct& regs, uint32_t slot,
                                      int signal) const;
  Point before_syscall(const user_regs_struct& regs, BlockRef block) const;
  Point behind_syscall(const user_regs_struct& regs, BlockRef block) const;
  // Steps to the next point; what else happened, if anything.
  struct Rolled {
    std::optional<tracee::Event> other;
    bool stepped = false;
    // By a mask that the steps have brought back, or since another thread must go first.
    bool postponed = false;
  };
  Result<Rolled> roll_forward(const tracee::Event& event, uint32_t slot, user_regs_struct& regs);
  Result<std::optional<tracee::Event>> enter_handler(const tracee::Event& event, uint32_t slot,
                                                     const Point& point,
                                                     const user_regs_struct& fallback);
  const uint8_t* code_at(CacheAddr address) const;
  // Executes the instruction by which a return reads its number, if the thread stands there and it
  // may fault.
  bool read_number(user_regs_struct& regs) const;
  // Steps make the kernel forget that the program ignores SIGTRAP.
  Result<int64_t> call_in(pid_t tid, long number, const std::array<uint64_t, 6>& arguments);
  Status ignore_trap_again(pid_t tid, uint32_t slot);
  Status begin_handler(pid_t tid, uint32_t slot, const Point& point);
  // Makes a signal pending again; `admit` gives it its details back.
  void hold(pid_t tid, const siginfo_t& info);
  uint64_t tcb_u64(uint32_t slot, uint32_t offset) const;
  CacheAddr copy_of(BlockRef ref, uint32_t insn) const;
  TargetAddr end_of(BlockRef ref) const;

  tracee::Process& process_;
  Region& region_;
  CodeCache& cache_;
  Ledger& ledger_;
  Service& service_;
  std::map<std::pair<pid_t, int>, std::deque<siginfo_t>> held_;
  bool trap_ignored_ = false;  // by the process of the thread at hand
};

}  // namespace tally::engine
