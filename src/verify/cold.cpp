// Watching single blocks, when following every step has become too dear.
//
// Problem.  A hot loop of a thousand million turns cannot be followed in a minute, but most edges
// of a program are cold, and most bugs of profilers sit there.
//
// Idea.  For the first half of the budget everything is followed.  Then breakpoints stay only at
// the ends of blocks whose claims say that the second half of the budget will do for them; the rest
// runs natively.  A stop at the end of such a block says that it was entered once more and where
// control goes from there, whatever happened before: counts of these blocks, and of the edges that
// leave them, stay complete.  A return is only told of as an edge when it leaves a watched block.
//
// Not handled: several threads at the moment of the change (who is where is not known then); the
// run is ended.  What was never entered before, and is in no claim, is not seen.
#include <csignal>

#include "verify/registers.h"
#include "verify/watcher.h"

namespace tally::verify {

namespace {
constexpr double kSecondsPerStop = 60e-6;
constexpr int kKernelTrap = 0x80;
constexpr uint64_t kSyscallSize = 2;
}  // namespace

Status Watcher::turn_cold(Thread& t, user_regs_struct& regs) {
  if (threads_.size() != 1) {
    end_everything("the budget is used up, and several threads are running");
    return Ok{};
  }
  cold_ = outcome_.cold_only = true;
  outcome_.followed_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const double left = options_.budget_seconds - outcome_.followed_seconds;
  const auto stops = static_cast<uint64_t>(std::max(left, 1.0) / kSecondsPerStop);
  outcome_.watched = options_.choose_cold(stops);
  cold_blocks_.insert(outcome_.watched.begin(), outcome_.watched.end());
  disarm(*t.space);
  arm(*t.space);
  t.owed = t.position.block;
  return cold_stop(t, regs);
}

void Watcher::disarm(Space& space) {
  space.breakpoints.remove_all(space.process());
}

// Blocks that were never reached are read now; what overlaps other code is left alone.
void Watcher::arm(Space& space) {
  for (const BlockId id : outcome_.watched) {
    const CodeBlock& b = code_.block(id);
    const Mapped* mapped = space.mapping_of(b.module, b.begin);
    if (mapped == nullptr || mapped->changing) continue;
    if (b.how == BlockEnd::kUnread) code_.arrive(code_.module(b.module), b.begin);
    if (b.overlaps || b.how == BlockEnd::kBroken || b.how == BlockEnd::kSystemCall ||
        b.how == BlockEnd::kTrap) {
      continue;
    }
    space.breakpoints.insert(space.process(), TargetAddr(b.last.value() + mapped->bias));
  }
}

BlockId Watcher::cold_block_ending_at(Thread& t, uint64_t rip) const {
  const Mapped* mapped = t.space->at(rip);
  if (mapped == nullptr) return kNoBlock;
  const CodeModule& module = code_.module(mapped->module);
  const LinkAddr link(rip - mapped->bias);
  const BlockId id = code_.holding(module, link);
  const bool watched = id != kNoBlock && cold_blocks_.contains(id) && code_.block(id).last == link;
  return watched ? id : kNoBlock;
}

// Control left the block for `rip`.
void Watcher::cold_left(Thread& t, BlockId id, uint64_t rip) {
  const CodeBlock& b = code_.block(id);
  const Mapped* mapped = t.space->at(rip);
  if (mapped == nullptr) return;
  CodeModule& module = code_.module(mapped->module);
  const BlockId to = code_.find(module, LinkAddr(rip - mapped->bias));
  if (to == kNoBlock || b.branch.op == isa::Op::kReturn) return;
  EdgeRole role = EdgeRole::kBranch;
  const Mapped* own = t.space->mapping_of(b.module, b.begin);
  const bool next = own != nullptr && rip == b.end.value() + own->bias;
  if (b.how == BlockEnd::kFallthrough || b.how == BlockEnd::kOpaque) role = EdgeRole::kFallthrough;
  const bool conditional = b.branch.op == isa::Op::kConditional || b.branch.op == isa::Op::kCounted;
  if (conditional && next) role = EdgeRole::kFallthrough;
  if (b.branch.op == isa::Op::kCall || b.branch.op == isa::Op::kIndirectCall) {
    role = EdgeRole::kCall;
    tell([&](Checker& c) { c.procedure_called(id, to); });
  }
  tell([&](Checker& c) { c.edge_taken(id, to, role); });
}

// The thread stands at the end of a watched block.
Status Watcher::cold_stop(Thread& t, user_regs_struct& kernel_regs) {
  isa::Registers regs = from_kernel(kernel_regs);
  for (int i = 0; i < 64; ++i) {
    const BlockId id = cold_block_ending_at(t, regs.rip);
    if (id == kNoBlock) break;
    const Mapped* mapped = t.space->at(regs.rip);
    const CodeBlock& b = code_.block(id);
    if (t.owed != id) {
      ++outcome_.blocks;
      tell([&](Checker& c) { c.block_entered(id); });
    }
    t.owed = kNoBlock;
    const auto bytes = code_.module(b.module).code_at(b.last);
    const isa::Operation last = isa::decode_operation(bytes, b.last.value());
    if (!isa::execute(last, mapped->bias, regs, *t.space)) {
      to_kernel(regs, kernel_regs);
      t.space->process().set_registers(t.tid, kernel_regs);
      t.stepped_block = id;
      single(t, regs.rip, 0);
      return Ok{};
    }
    cold_left(t, id, regs.rip);
  }
  to_kernel(regs, kernel_regs);
  return cold_go(t, kernel_regs, true);
}

Status Watcher::cold_go(Thread& t, user_regs_struct& regs, bool changed) {
  if (changed) t.space->process().set_registers(t.tid, regs);
  t.position = {};
  t.motion = Motion::kRun;
  // A breakpoint that stands here and belongs to no block any more is stepped over.
  if (t.space->breakpoints.contains(TargetAddr(regs.rip)) &&
      cold_block_ending_at(t, regs.rip) == kNoBlock) {
    single(t, regs.rip, 0);
    return Ok{};
  }
  tracee::resume_watched(t.tid);
  return Ok{};
}

Status Watcher::cold_signal(Thread& t, const tracee::Event& event, user_regs_struct& regs) {
  if (event.signal == SIGTRAP && event.info.si_code == kKernelTrap &&
      t.space->breakpoints.contains(TargetAddr(regs.rip - 1))) {
    ++outcome_.breakpoint_stops;
    regs.rip -= 1;
    return cold_stop(t, regs);
  }
  if (t.motion == Motion::kSingle && event.signal == SIGTRAP && event.info.si_code == TRAP_TRACE) {
    ++outcome_.steps;
    if (t.stepped_block != kNoBlock) cold_left(t, t.stepped_block, regs.rip);
    t.stepped_block = kNoBlock;
    return cold_stop(t, regs);
  }
  ++outcome_.signal_stops;
  t.stepped_block = kNoBlock;
  t.motion = Motion::kRun;
  tracee::resume_watched(t.tid, event.signal);
  return Ok{};
}

Status Watcher::cold_call(Thread& t, const tracee::SystemCallStop& stop, user_regs_struct& regs) {
  const BlockId id = cold_block_ending_at(t, regs.rip - kSyscallSize);
  if (stop.entry) {
    t.call = stop;
    t.in_call = true;
    if (id != kNoBlock && t.owed != id) {
      ++outcome_.blocks;
      tell([&](Checker& c) { c.block_entered(id); });
    }
    t.owed = kNoBlock;
    before_trap_call(t, regs);
    tracee::resume_watched(t.tid);
    return Ok{};
  }
  t.in_call = false;
  t.call.result = stop.result;
  const bool maps = t.become || stop.result >= 0;
  if (!t.become) after_trap_call(t, regs);
  if (maps && (t.become || touches_memory_map(t.call.number))) {
    if (t.become) TRY(t.space->refresh(outcome_.notes));
    if (!t.become) TRY(memory_changed(t, stop.result));
    arm(*t.space);
  }
  const bool again = may_restart(stop.result);
  if (again) t.owed = id;
  if (!again && !t.become && id != kNoBlock && t.call.number != 15) cold_left_call(t, id, regs.rip);
  t.become = false;
  return cold_go(t, regs, false);
}

void Watcher::cold_left_call(Thread& t, BlockId id, uint64_t rip) {
  const Mapped* mapped = t.space->at(rip);
  if (mapped == nullptr) return;
  const BlockId to = code_.find(code_.module(mapped->module), LinkAddr(rip - mapped->bias));
  if (to != kNoBlock) tell([&](Checker& c) { c.edge_taken(id, to, EdgeRole::kSystemCall); });
}

}  // namespace tally::verify
