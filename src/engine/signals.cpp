// See signals.h.
#include "engine/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tally::engine {

using namespace translate;
using tracee::Event;

namespace {

constexpr uint64_t kTrapBit = bit_of(SIGTRAP);
constexpr uint64_t kAllButTrap = ~kTrapBit;
constexpr int kFirstRealTime = 32;

// Raised by the instruction that the thread stands at (or, for a trap, has just executed).
bool is_fault(const siginfo_t& info) {
  if (info.si_code <= 0) return false;
  return info.si_signo == SIGSEGV || info.si_signo == SIGBUS || info.si_signo == SIGFPE ||
         info.si_signo == SIGILL || info.si_signo == SIGTRAP;
}

// A filter of the program (seccomp) has trapped the system call that the thread was about to make.
bool is_trapped_call(const siginfo_t& info) {
  constexpr int kSysSeccomp = 1;  // SYS_SECCOMP
  return info.si_signo == SIGSYS && info.si_code == kSysSeccomp;
}

// Inside a system call that the kernel may restart; its codes for that are not for programs.
bool is_interrupted_call(const user_regs_struct& regs) {
  constexpr int64_t kErestartSys = 512, kErestartNoIntr = 513, kErestartNoHand = 514,
                    kErestartBlock = 516;
  if (static_cast<int64_t>(regs.orig_rax) < 0) return false;
  const int64_t code = -static_cast<int64_t>(regs.rax);
  return code == kErestartSys || code == kErestartNoIntr || code == kErestartNoHand ||
         code == kErestartBlock;
}

}  // namespace

uint64_t Signals::tcb_u64(uint32_t slot, uint32_t offset) const {
  uint64_t value = 0;
  memcpy(&value, region_.thread_memory(slot) + offset, sizeof value);
  return value;
}

CacheAddr Signals::copy_of(BlockRef ref, uint32_t insn) const {
  const Unit& unit = cache_.unit(ref.unit);
  return unit.code.address(unit.code.offset_of_insn(ref.block, insn));
}

TargetAddr Signals::end_of(BlockRef ref) const {
  const Unit& unit = cache_.unit(ref.unit);
  return unit.module->to_target(unit.end_of(ref.block));
}

// ---- signals that come back --------------------------------------------------------------------

void Signals::hold(pid_t tid, const siginfo_t& info) {
  std::deque<siginfo_t>& queue = held_[{tid, info.si_signo}];
  // Of an ordinary signal only one can be pending.
  if (info.si_signo < kFirstRealTime) queue.clear();
  queue.push_back(info);
  process_.send_signal(tid, info.si_signo);
}

bool Signals::admit(Event& event) {
  const bool ours = event.info.si_code == SI_TKILL && event.info.si_pid == getpid();
  auto it = held_.find({event.tid, event.signal});
  if (it == held_.end()) return !ours;
  std::deque<siginfo_t>& queue = it->second;
  if (!ours) {
    if (event.signal < kFirstRealTime) return true;
    queue.push_back(event.info);  // real-time signals keep their order
  }
  event.info = queue.front();
  queue.pop_front();
  if (queue.empty()) held_.erase(it);
  process_.set_signal_info(event.tid, event.info);
  return true;
}

void Signals::forget(pid_t tid) {
  std::erase_if(held_, [tid](const auto& entry) { return entry.first.first == tid; });
}

Signals::Fate Signals::fate_of(const Event& event) {
  constexpr uint64_t kHarmless = bit_of(SIGCHLD) | bit_of(SIGCONT) | bit_of(SIGURG) |
                                 bit_of(SIGWINCH) | bit_of(SIGSTOP) | bit_of(SIGTSTP) |
                                 bit_of(SIGTTIN) | bit_of(SIGTTOU);
  const tracee::Process::Dispositions now = process_.dispositions(event.tid);
  trap_ignored_ = (now.ignored & kTrapBit) != 0;
  const uint64_t bit = bit_of(event.signal);
  if ((now.caught & bit) != 0) return Fate::kHandler;
  return ((kHarmless | now.ignored) & bit) != 0 ? Fate::kHarmless : Fate::kEndsProcess;
}

// ---- where a thread stands ---------------------------------------------------------------------

Signals::Point Signals::before_syscall(const user_regs_struct& regs, BlockRef block) const {
  const Unit& unit = cache_.unit(block.unit);
  const uint32_t last = unit.procedure.blocks[block.block].insn_count - 1;
  Point point;
  point.original = regs;
  point.resume = copy_of(block, last);
  user_regs_struct at_copy = regs;
  at_copy.rip = point.resume.value();
  point.position = ledger_.locate(at_copy, 0);
  point.original.rip = point.position.pc.value();
  return point;
}

Signals::Point Signals::behind_syscall(const user_regs_struct& regs, BlockRef block) const {
  Point point;
  point.original = regs;
  point.original.rip = end_of(block).value();
  point.original.rcx = point.original.rip;
  const SyscallSite* site = cache_.syscall_site_of(block);
  point.resume = site->resume;
  point.restart =
      copy_of(block, cache_.unit(block.unit).procedure.blocks[block.block].insn_count - 1);
  user_regs_struct at_copy = regs;
  at_copy.rip = site->behind.value();
  point.position = ledger_.locate(at_copy, 0);
  return point;
}

// In the code that stands for a `syscall`: in front of it nothing but rcx has changed.
std::optional<Signals::Point> Signals::point_at_syscall(const user_regs_struct& regs,
                                                        uint32_t slot) const {
  const Position position = ledger_.locate(regs, slot);
  if (position.kind != Position::Kind::kInBlock) return std::nullopt;
  const SyscallSite* site = cache_.syscall_site_of(position.ref);
  if (site == nullptr) return std::nullopt;
  const CacheAddr at(regs.rip);
  if (at == site->behind) return behind_syscall(regs, position.ref);
  const cfg::Block& block = cache_.unit(position.ref.unit).procedure.blocks[position.ref.block];
  if (at <= copy_of(position.ref, block.insn_count - 1) || at >= site->behind) return std::nullopt;
  Point point = before_syscall(regs, position.ref);
  point.position = position;
  // If the kernel has rolled it back, to make it again, it has begun, and has changed rcx.
  const bool begun = position.done == block.insn_count;
  point.original.rcx = begun ? end_of(position.ref).value() : tcb_u64(slot, tcb::kSpillRcx);
  return point;
}

std::optional<Signals::Point> Signals::point_in_gateway(const user_regs_struct& regs, uint32_t slot,
                                                        const GatewayCode& gateway) const {
  const CacheAddr at(regs.rip);
  const bool before = at == gateway.syscall_insn && regs.rax != SYS_rt_sigreturn;
  const bool behind = at == gateway.syscall_insn + isa::kSyscallBytes && is_interrupted_call(regs);
  if (!before && !behind) return std::nullopt;
  const BlockRef block = cache_.syscall_block(static_cast<uint32_t>(tcb_u64(slot, tcb::kArgument)));
  Point point = before ? before_syscall(regs, block) : behind_syscall(regs, block);
  point.cancels = true;
  return point;
}

std::optional<Signals::Point> Signals::point_at(const user_regs_struct& regs, uint32_t slot) const {
  const CacheAddr at(regs.rip);
  const Area* area = region_.area_at(at);
  if (area == nullptr || cache_.is_boundary(at)) {
    Point point;
    point.position = ledger_.locate(regs, slot);
    point.original = regs;
    if (area != nullptr) point.original.rip = point.position.pc.value();
    point.resume = at;
    return point;
  }
  if (at < area->gateway.end) return point_in_gateway(regs, slot, area->gateway);
  return point_at_syscall(regs, slot);
}

// Right behind a `syscall` that was not executed: rax still holds the number.  It is not made again
// unless the handler says so, and the monitor never learns of a result.
std::optional<Signals::Point> Signals::point_of_trap(const user_regs_struct& regs,
                                                     uint32_t slot) const {
  const CacheAddr at(regs.rip);
  const Area* area = region_.area_at(at);
  if (area == nullptr || at != area->gateway.syscall_insn + isa::kSyscallBytes) {
    return point_at(regs, slot);
  }
  const auto site = static_cast<uint32_t>(tcb_u64(slot, tcb::kArgument));
  Point point = behind_syscall(regs, cache_.syscall_block(site));
  point.cancels = true;
  return point;
}

std::optional<Signals::Point> Signals::point_of_fault(const user_regs_struct& regs, uint32_t slot,
                                                      int signal) const {
  if (auto point = point_at(regs, slot)) return point;
  Point point;
  point.original = regs;
  point.position = ledger_.locate(regs, slot);
  if (point.position.kind != Position::Kind::kInBlock) return std::nullopt;
  const BlockRef ref = point.position.ref;
  const uint32_t count = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  if (point.position.done == count) {
    // A trap has been executed.  Nothing is known of what comes behind it.
    if (signal != SIGTRAP) return std::nullopt;
    point.original.rip = end_of(ref).value();
    return point;
  }
  // Inside the sequence of a branch: it keeps rcx, or where it goes to, first and has changed
  // nothing else.
  point.original.rip = point.position.pc.value();
  if (const auto* jump = cache_.unit(ref.unit).code.unspilled_at(ref.block)) {
    unsigned long long* by_code[] = {&point.original.rax, &point.original.rcx, &point.original.rdx,
                                     &point.original.rbx};
    *by_code[jump->reg] = tcb_u64(slot, tcb::kTarget);
  } else {
    point.original.rcx = tcb_u64(slot, tcb::kSpillRcx);
  }
  point.resume = copy_of(ref, point.position.done);
  const Unit& unit = cache_.unit(ref.unit);
  if (unit.code.blocks[ref.block].counts_in_return && point.position.block_counted) {
    point.counts_again = static_cast<uint32_t>(unit.plan.block_counter[ref.block]);
    point.position.block_counted = false;
  }
  return point;
}

// ---- delivery ----------------------------------------------------------------------------------

Result<Signals::Rolled> Signals::roll_forward(const Event& event, uint32_t slot,
                                              user_regs_struct& regs) {
  constexpr int kStepsMax = 100000;
  const pid_t tid = event.tid;
  Rolled rolled;
  if (point_at(regs, slot)) return rolled;
  rolled.stepped = true;
  uint64_t mask = process_.signal_mask(tid);
  process_.set_signal_mask(tid, kAllButTrap);
  for (int steps = 0; !rolled.other && !point_at(regs, slot); ++steps) {
    if (steps == kStepsMax) {
      return make_error("a thread at {:#x} could not be brought to an instruction", regs.rip);
    }
    if (!service_.serve_now(slot)) {  // later, then
      rolled.postponed = true;
      break;
    }
    if (read_number(regs)) {
      process_.set_registers(tid, regs);
      continue;
    }
    const Area* area = region_.area_at(CacheAddr(regs.rip));
    const bool returns = area != nullptr && CacheAddr(regs.rip) == area->gateway.syscall_insn;
    TRY_ASSIGN(Event stepped, process_.step(tid, 0));
    if (!tracee::Process::is_step_end(stepped)) {
      rolled.other = stepped;
    } else if (!process_.try_registers(tid, regs)) {
      return make_error("thread {} vanished while a signal was delivered", tid);
    }
    if (returns) {  // from another handler: the mask from before it has been restored
      mask = process_.signal_mask(tid);
      rolled.postponed = (mask >> (event.signal - 1) & 1) != 0;
      process_.set_signal_mask(tid, kAllButTrap);
    }
  }
  process_.set_signal_mask(tid, mask);
  return rolled;
}

Result<std::optional<Event>> Signals::deliver(const Event& event, uint32_t slot) {
  const pid_t tid = event.tid;
  user_regs_struct regs{};
  if (!process_.try_registers(tid, regs)) return std::optional<Event>();  // killed meanwhile
  siginfo_t info = event.info;
  std::optional<Point> point;
  if (is_fault(info)) {
    point = point_of_fault(regs, slot, event.signal);
    if (!point) {
      return make_error("signal {} at {:#x} in the code cache, where no instruction is",
                        event.signal, regs.rip);
    }
    if (reinterpret_cast<uint64_t>(info.si_addr) == regs.rip) {
      info.si_addr = reinterpret_cast<void*>(point->original.rip);  // NOLINT: the target's address
    }
  } else if (is_trapped_call(info)) {
    point = point_of_trap(regs, slot);
    if (!point) {
      return make_error("a system call trapped at {:#x} in the code cache, where none is made",
                        regs.rip);
    }
    point->restart = CacheAddr();
    info.si_call_addr = reinterpret_cast<void*>(point->original.rip);  // NOLINT: the target's
  } else {
    TRY_ASSIGN(const Rolled rolled, roll_forward(event, slot, regs));
    if (rolled.other) {
      const tracee::EventKind kind = rolled.other->kind;
      if (kind != tracee::EventKind::kGone && kind != tracee::EventKind::kExiting) hold(tid, info);
      return rolled.other;
    }
    if (rolled.postponed) {
      hold(tid, info);
      if (rolled.stepped) TRY(ignore_trap_again(tid, slot));
      process_.resume(tid);
      return std::optional<Event>();
    }
    point = point_at(regs, slot);
    point->stepped = rolled.stepped;
  }
  user_regs_struct fallback = regs;
  if (point->cancels) {
    service_.cancel_syscall(slot, point->original);
    fallback = point->original;
    if (point->restart != CacheAddr()) fallback.rax = fallback.orig_rax;
    fallback.orig_rax = static_cast<uint64_t>(-1);
    fallback.rip = (point->restart != CacheAddr() ? point->restart : point->resume).value();
  }
  process_.set_signal_info(tid, info);
  return enter_handler(event, slot, *point, fallback);
}

Result<std::optional<Event>> Signals::enter_handler(const Event& event, uint32_t slot,
                                                    const Point& point,
                                                    const user_regs_struct& fallback) {
  const pid_t tid = event.tid;
  if (point.counts_again) region_.add_to_counter(slot, *point.counts_again, -1);
  ledger_.handler_ahead(slot, point.position, point.original);
  process_.set_registers(tid, point.original);
  TRY_ASSIGN(Event after, process_.step(tid, event.signal));
  if (tracee::Process::is_handler_entry(after)) {
    TRY(begin_handler(tid, slot, point));
    return std::optional<Event>();
  }
  // Any other event is of a thread that dies, perhaps in front of the handler.
  const bool lives =
      after.kind == tracee::EventKind::kSignal || after.kind == tracee::EventKind::kGroupStop;
  if (lives) ledger_.no_handler_ahead(slot);
  // No handler after all: it was taken away meanwhile, or its frame did not fit on the stack.
  if (after.kind != tracee::EventKind::kGone) {
    process_.set_registers(tid, fallback);
    if (point.counts_again) region_.add_to_counter(slot, *point.counts_again, 1);
  }
  const bool ignored = after.kind == tracee::EventKind::kSignal && after.signal == SIGSEGV &&
                       after.info.si_code == SEGV_ACCERR &&
                       reinterpret_cast<uint64_t>(after.info.si_addr) == point.original.rip;
  if (!ignored) return std::optional<Event>(after);
  process_.resume(tid);
  return std::optional<Event>();
}

// The thread is in front of the handler's first instruction, the kernel's frame on its stack.
Status Signals::begin_handler(pid_t tid, uint32_t slot, const Point& point) {
  constexpr uint64_t kContextOffset = 8;  // behind the address the handler returns to
  user_regs_struct regs{};
  if (!process_.try_registers(tid, regs)) return Ok{};  // killed meanwhile; its end is reported
  uint64_t restorer = 0;
  if (!process_.read_memory(TargetAddr(regs.rsp), &restorer, sizeof restorer)) restorer = 0;
  Interruption interruption;
  interruption.context = regs.rsp + kContextOffset;
  interruption.registers = point.original;
  interruption.position = point.position;
  interruption.resume = point.resume;
  interruption.restart = point.restart;
  service_.call_by_stopped_thread([&](long number, const std::array<uint64_t, 6>& arguments) {
    return call_in(tid, number, arguments);
  });
  const Result<BlockRef> found = cache_.resolve(TargetAddr(regs.rip), Arrival::kCall);
  service_.call_by_stopped_thread({});
  TRY_ASSIGN(const BlockRef handler, found);
  const bool at_start = handler.valid() && handler.insn == 0;
  ledger_.handler_entered(slot, interruption, at_start ? handler : BlockRef{},
                          TargetAddr(restorer));
  if (at_start) {
    regs.rip = cache_.way_into(handler).value();
  } else if (handler.valid()) {
    TRY_ASSIGN(const CacheAddr entry, cache_.arrive(handler));
    regs.rip = entry.value();
  }
  process_.set_registers(tid, regs);
  if (point.stepped) TRY(ignore_trap_again(tid, slot));
  process_.resume(tid);
  return Ok{};
}

Status Signals::ignore_trap_again(pid_t tid, uint32_t slot) {
  if (!trap_ignored_) return Ok{};
  struct KernelAction {
    uint64_t handler, flags, restorer, mask;
  };
  constexpr uint64_t kMaskBytes = 8;
  const uint64_t scratch = region_.thread_block(slot).value() + tcb::kScratch;
  uint8_t* memory = region_.thread_memory(slot) + tcb::kScratch;
  TRY(call_in(tid, SYS_rt_sigaction, {SIGTRAP, 0, scratch, kMaskBytes}));
  KernelAction action{};
  memcpy(&action, memory, sizeof action);
  if (action.handler == reinterpret_cast<uint64_t>(SIG_DFL)) {
    action.handler = reinterpret_cast<uint64_t>(SIG_IGN);
    memcpy(memory, &action, sizeof action);
    TRY(call_in(tid, SYS_rt_sigaction, {SIGTRAP, scratch, 0, kMaskBytes}));
  }
  return Ok{};
}

// A system call by a thread at a stop, during which no signal reaches it.
Result<int64_t> Signals::call_in(pid_t tid, long number, const std::array<uint64_t, 6>& arguments) {
  const uint64_t mask = process_.signal_mask(tid);
  process_.set_signal_mask(tid, ~0ull);
  const TargetAddr insn(region_.areas().front().gateway.monitor_syscall.value());
  auto result = process_.remote_syscall(tid, insn, number, arguments);
  process_.set_signal_mask(tid, mask);
  return result;
}

}  // namespace tally::engine
