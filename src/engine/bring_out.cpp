// Bringing a thread to where it can be let go, or left standing for a while.  See signals.h.
#include <errno.h>
#include <sys/syscall.h>

#include "engine/signals.h"

namespace tally::engine {

using tracee::Event;
using Kind = tracee::EventKind;

namespace {

// Faults must get through: one that is blocked makes the kernel forget its handler.
constexpr uint64_t kAllButFaults =
    ~(bit_of(SIGTRAP) | bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGFPE) | bit_of(SIGILL));

}  // namespace

Result<Signals::Outside> Signals::bring(pid_t tid, uint32_t slot, Purpose purpose) {
  constexpr int kStepsMax = 100000;
  trap_ignored_ = (process_.dispositions(tid).ignored & bit_of(SIGTRAP)) != 0;
  Outside out;
  bool stepped = false;
  uint64_t mask = 0;
  const auto finish = [&]() -> Result<Outside> {
    if (!stepped) return out;
    process_.set_signal_mask(tid, mask);
    if (out.ready) TRY(ignore_trap_again(tid, slot));
    return out;
  };
  for (int steps = 0; steps < kStepsMax; ++steps) {
    user_regs_struct regs{};
    if (!process_.try_registers(tid, regs)) return finish();  // killed; its end is reported
    if (const auto request = service_.posted_request(slot)) {
      if (purpose == Purpose::kRest) return finish();
      if (service_.is_to_be_served(slot, *request) && !service_.error()) {
        if (!service_.serve_now(slot)) return finish();
        continue;
      }
      out.position = ledger_.locate(regs, slot);
      if (*request == translate::Request::kSyscall) {
        // Asked for, not made.
        out.position.done -= 1;
        out.position.pc = end_of(out.position.ref) - isa::kSyscallBytes;
      }
      TRY_ASSIGN(out.original, service_.registers_at_request(slot, regs, out.position));
      out.ready = true;
      return finish();
    }
    if (const auto point = point_at(regs, slot)) {
      out.original = point->original;
      out.position = point->position;
      if (point->cancels && purpose == Purpose::kLetGo) {
        service_.cancel_syscall(slot, out.original);
      }
      out.ready = true;
      return finish();
    }
    if (read_number(regs)) {
      process_.set_registers(tid, regs);
      continue;
    }
    if (!stepped) {
      mask = process_.signal_mask(tid);
      process_.set_signal_mask(tid, kAllButFaults);
      stepped = true;
    }
    const Area* area = region_.area_at(CacheAddr(regs.rip));
    const bool returns = area != nullptr && CacheAddr(regs.rip) == area->gateway.syscall_insn;
    TRY_ASSIGN(const Event event, process_.step(tid, 0));
    if (returns) {  // from a handler: the mask from before it has been restored
      mask = process_.signal_mask(tid);
      process_.set_signal_mask(tid, kAllButFaults);
    }
    if (tracee::Process::is_step_end(event) || event.kind == Kind::kThreadReady) continue;
    if (purpose == Purpose::kRest) {  // whatever it is, it comes first
      out.other = event;
      return finish();
    }
    if (event.kind == Kind::kGroupStop) continue;
    if (event.kind == Kind::kSignal && event.info.si_code > 0) {
      // The instruction faults, and will do so again natively.
      if (!process_.try_registers(tid, regs)) return finish();
      const auto point = point_of_fault(regs, slot, event.signal);
      if (!point) return make_error("a thread at {:#x} cannot be let go", regs.rip);
      out.original = point->original;
      out.position = point->position;
      out.ready = true;
      return finish();
    }
    if (event.kind == Kind::kSignal) {
      hold(tid, event.info);
      continue;
    }
    out.other = event;
    return finish();
  }
  return make_error("thread {} could not be brought to an instruction of the program", tid);
}

}  // namespace tally::engine
