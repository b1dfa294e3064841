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
// Threads turn one by one, each where it is known to be: in a system call at once, else at its next
// stop.  Until the last one has, the breakpoints of both ways stand side by side.  With several
// threads nothing that is watched may be stepped over by taking its breakpoint out, as another
// thread could pass meanwhile: blocks whose last instruction nobody emulates are left alone, and
// one that has to be stepped all the same is not watched any more.
//
// Not handled: what was never entered before, and is in no claim, is not seen; a block in which a
// thread is killed was entered, and is not told of.
#include <algorithm>
#include <csignal>

#include "verify/registers.h"
#include "verify/watcher.h"

namespace tally::verify {

namespace {
constexpr double kSecondsPerStop = 60e-6;
constexpr int kKernelTrap = 0x80;
}  // namespace

// All that the thread has done so far is told; from here on only what is watched will be.
Status Watcher::turn_cold(Thread& t, user_regs_struct& regs) {
  if (!cold_) begin_cold();
  const BlockId inside = t.position.block;
  leave_to_the_cold(t);
  t.owed = inside;
  return cold_stop(t, regs);
}

void Watcher::begin_cold() {
  cold_ = outcome_.cold_only = true;
  outcome_.looks_at_input = true;  // from here on nobody looks
  outcome_.followed_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const double left = options_.budget_seconds - outcome_.followed_seconds;
  const auto stops = static_cast<uint64_t>(std::max(left, 1.0) / kSecondsPerStop);
  outcome_.watched = options_.choose_cold(stops);
  cold_blocks_.insert(outcome_.watched.begin(), outcome_.watched.end());
  for (auto& [tid, t] : threads_) arm(*t.space);
  for (auto& [tid, t] : threads_) {
    if (t.started && t.in_call) leave_to_the_cold(t);
  }
}

// What a handler has interrupted goes on later, and was told of as entered already.
void Watcher::leave_to_the_cold(Thread& t) {
  for (const auto& [context, handler] : t.handlers) drop(handler.position.block);
  t.cold = true;
  t.position = {};
  t.owed = kNoBlock;
  retire_warm_breakpoints();
}

bool Watcher::anyone_warm() const {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](const auto& entry) { return entry.second.started && !entry.second.cold; });
}

void Watcher::retire_warm_breakpoints() {
  if (anyone_warm()) return;
  std::unordered_set<Space*> done;
  for (auto& [tid, t] : threads_) {
    if (!done.insert(t.space.get()).second) continue;
    std::unordered_set<uint64_t> kept;
    for (const BlockId id : outcome_.watched) {
      const CodeBlock& b = code_.block(id);
      const Mapped* mapped = t.space->mapping_of(b.module, b.begin);
      if (mapped != nullptr) kept.insert(b.last.value() + mapped->bias);
    }
    t.space->breakpoints.retire_all_but(t.space->process(), kept);
  }
}

// The block's counts are not complete any more.
void Watcher::drop(BlockId id) {
  if (cold_blocks_.erase(id) != 0) std::erase(outcome_.watched, id);
}

bool Watcher::is_watchable(Space& space, BlockId id) {
  const CodeBlock& b = code_.block(id);
  const Mapped* mapped = space.mapping_of(b.module, b.begin);
  if (mapped == nullptr) return true;  // not yet
  const bool readable = !mapped->changing && !b.overlaps && b.how != BlockEnd::kBroken &&
                        b.how != BlockEnd::kUnread && b.how != BlockEnd::kTrap;
  return readable && (b.how != BlockEnd::kOpaque || threads_.size() == 1);
}

// Blocks that were never reached are read now, which may cut others.
void Watcher::arm(Space& space) {
  const std::vector<BlockId> wanted = outcome_.watched;
  for (const BlockId id : wanted) {
    const CodeBlock& b = code_.block(id);
    const Mapped* mapped = space.mapping_of(b.module, b.begin);
    if (mapped == nullptr || mapped->changing || b.how != BlockEnd::kUnread) continue;
    code_.arrive(code_.module(b.module), b.begin);
  }
  const std::vector<BlockId> read = outcome_.watched;
  for (const BlockId id : read) {
    const CodeBlock& b = code_.block(id);
    const Mapped* mapped = space.mapping_of(b.module, b.begin);
    if (!is_watchable(space, id)) {
      drop(id);
    } else if (mapped != nullptr && b.how != BlockEnd::kSystemCall) {
      space.breakpoints.insert(space.process(), TargetAddr(b.last.value() + mapped->bias));
    }
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

// The thread stands at the end of a watched block, or at a breakpoint that others may still need.
Status Watcher::cold_stop(Thread& t, user_regs_struct& kernel_regs) {
  isa::Registers regs = from_kernel(kernel_regs);
  tracee::Breakpoints& breakpoints = t.space->breakpoints;
  for (int i = 0; i < 64; ++i) {
    const BlockId id = cold_block_ending_at(t, regs.rip);
    const Mapped* mapped = t.space->at(regs.rip);
    if (mapped == nullptr) break;
    if (id == kNoBlock) {
      if (!anyone_warm()) breakpoints.retire(t.space->process(), TargetAddr(regs.rip));
      if (!breakpoints.contains(TargetAddr(regs.rip))) break;
    } else if (t.owed != id) {
      ++outcome_.blocks;
      tell([&](Checker& c) { c.block_entered(id); });
    }
    if (id != kNoBlock) t.owed = kNoBlock;
    const LinkAddr at(regs.rip - mapped->bias);
    const isa::Operation last =
        isa::decode_operation(code_.module(mapped->module).code_at(at), at.value());
    if (!isa::execute(last, mapped->bias, regs, *t.space)) {
      to_kernel(regs, kernel_regs);
      t.space->process().set_registers(t.tid, kernel_regs);
      t.stepped_block = id;
      if (threads_.size() > 1) drop(id);
      single(t, regs.rip, 0);
      return Ok{};
    }
    if (id != kNoBlock) cold_left(t, id, regs.rip);
  }
  to_kernel(regs, kernel_regs);
  return cold_go(t, kernel_regs, true);
}

Status Watcher::cold_go(Thread& t, user_regs_struct& regs, bool changed) {
  if (changed) t.space->process().set_registers(t.tid, regs);
  t.position = {};
  t.motion = Motion::kRun;
  tracee::resume_watched(t.tid);
  return Ok{};
}

Status Watcher::cold_signal(Thread& t, const tracee::Event& event, user_regs_struct& regs) {
  if (event.signal == SIGTRAP && event.info.si_code == kKernelTrap &&
      t.space->breakpoints.explains_trap(TargetAddr(regs.rip - 1))) {
    ++outcome_.breakpoint_stops;
    regs.rip -= 1;
    return cold_stop(t, regs);
  }
  if (t.motion == Motion::kSingle && ends_step(t, event, regs)) {
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
  const BlockId id = cold_block_ending_at(t, regs.rip - isa::kSyscallBytes);
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
