// From block to block.  See watcher.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "verify/registers.h"
#include "verify/watcher.h"

namespace tally::verify {
namespace {

constexpr int kChainMax = 64;        // blocks run through without a stop
constexpr int kEmulatedMax = 20000;  // blocks emulated before other threads and signals get a turn
constexpr int kFollowedMax = 1 << 12;                    // longer than any chain
constexpr uint64_t kVsyscallBegin = 0xffffffffff600000;  // executed by the kernel

bool is_direct(BlockEnd how) {
  return how == BlockEnd::kFallthrough || how == BlockEnd::kJump || how == BlockEnd::kCall;
}

// Where a block with a direct end goes on.
LinkAddr next_of(const CodeBlock& b) {
  return b.how == BlockEnd::kFallthrough ? b.end : LinkAddr(b.branch.target);
}

EdgeRole role_of(BlockEnd how) {
  switch (how) {
    case BlockEnd::kFallthrough:
    case BlockEnd::kOpaque:
      return EdgeRole::kFallthrough;
    case BlockEnd::kCall:
      return EdgeRole::kCall;
    case BlockEnd::kSystemCall:
      return EdgeRole::kSystemCall;
    default:
      return EdgeRole::kBranch;
  }
}

}  // namespace

const Mapped* Watcher::mapped_of(Thread& t, BlockId id) const {
  if (id == kNoBlock) return nullptr;
  const CodeBlock& b = code_.block(id);
  return t.space->mapping_of(b.module, b.begin);
}

bool Watcher::inside(Thread& t, BlockId id, uint64_t rip) const {
  const Mapped* mapped = mapped_of(t, id);
  return mapped != nullptr && code_.block(id).contains(LinkAddr(rip - mapped->bias));
}

bool Watcher::is_stepped(const Thread& t, BlockId id, const Mapped* mapped) const {
  (void)t;
  return mapped == nullptr || mapped->changing || code_.block(id).overlaps;
}

void Watcher::enter(Thread& t, BlockId id) {
  t.position = {.block = id};
  ++outcome_.blocks;
  tell([&](Checker& c) { c.block_entered(id); });
  if (t.in_interrupting) tell([&](Checker& c) { c.interrupting_block(id); });
}

// The block at `rip`; nothing is told.  Code that may have changed is read anew.
BlockId Watcher::arrive(Thread& t, uint64_t rip) {
  const Mapped* mapped = t.space->at(rip);
  if (mapped == nullptr) return kNoBlock;
  const LinkAddr link(rip - mapped->bias);
  const BlockId id = code_.arrive(code_.module(mapped->module), link);
  if (mapped->changing) {
    std::array<uint8_t, 4096> bytes{};
    size_t size = bytes.size() - (rip & 0xfff);
    if (!t.space->read(rip, bytes.data(), size)) size = 0;
    code_.reread(id, std::span(bytes).first(size));
  }
  return id;
}

void Watcher::begin_at(Thread& t, uint64_t rip) {
  const BlockId id = arrive(t, rip);
  t.position = {};
  if (id == kNoBlock) return;
  tell([&](Checker& c) { c.began(id); });
  enter(t, id);
}

void Watcher::follow(Thread& t, uint64_t rip, EdgeRole role) {
  const BlockId to = arrive(t, rip);
  // The arrival may have cut the very block it comes from: see `split`.
  const BlockId from = t.position.block;
  t.position = {};
  if (to == kNoBlock) return;  // a jump to nowhere: a fault is to come
  tell([&](Checker& c) { c.edge_taken(from, to, role); });
  if (role == EdgeRole::kCall) tell([&](Checker& c) { c.procedure_called(from, to); });
  enter(t, to);
}

// A return: nothing stands for it but the call that came back.
void Watcher::follow_return(Thread& t, uint64_t rip) {
  const BlockId to = arrive(t, rip);
  const BlockId from = t.position.block;
  t.position = {};
  if (to == kNoBlock) return;
  const CodeBlock& b = code_.block(to);
  if (from != kNoBlock) tell([&](Checker& c) { c.procedure_left(from, to); });
  const CodeModule& module = code_.module(b.module);
  const auto call = module.behind_call.find(b.begin.value());
  if (call != module.behind_call.end()) {
    tell([&](Checker& c) { c.edge_taken(call->second, to, EdgeRole::kCallReturn); });
  } else {
    tell([&](Checker& c) { c.began(to); });
  }
  enter(t, to);
}

// A block was cut.  Checkers give the lower part all that passed through the whole so far; so who
// is inside has been told of as being in the lower part.
void Watcher::split(BlockId upper, BlockId lower) {
  tell([&](Checker& c) { c.block_split(upper, lower); });
  // The breakpoint stands at the end of what is the lower part now.
  if (cold_blocks_.contains(upper)) {
    drop(upper);
    cold_blocks_.insert(lower);
    outcome_.watched.push_back(lower);
  }
  const auto move = [&](Position& p) {
    if (p.block == upper) p.block = lower;
  };
  for (auto& [tid, t] : threads_) {
    move(t.position);
    move(t.interrupted);
    for (auto& [context, handler] : t.handlers) move(handler.position);
  }
}

// The branch at the end of the thread's block went to `rip`.
void Watcher::follow_branch(Thread& t, uint64_t rip) {
  const CodeBlock& b = code_.block(t.position.block);
  if (b.returns_by_jump) return follow_return(t, rip);
  switch (b.branch.op) {
    case isa::Op::kReturn:
      return follow_return(t, rip);
    case isa::Op::kCall:
    case isa::Op::kIndirectCall:
      return follow(t, rip, EdgeRole::kCall);
    case isa::Op::kConditional:
    case isa::Op::kCounted: {
      const Mapped* mapped = mapped_of(t, t.position.block);
      const bool taken = mapped == nullptr || rip != b.end.value() + mapped->bias;
      // A branch to the next instruction: taken or not, nobody can tell from where it went.
      return follow(t, rip, taken ? EdgeRole::kBranch : EdgeRole::kFallthrough);
    }
    default:
      return follow(t, rip, EdgeRole::kBranch);
  }
}

void Watcher::cut_short(const Position& position, LinkAddr at) {
  if (position.block == kNoBlock || position.behind_call) return;
  tell([&](Checker& c) { c.block_cut_short(position.block, at); });
}

void Watcher::lose(Thread& t, uint64_t rip, const char* where) {
  if (outcome_.lost++ == 0) {
    outcome_.first_lost = fmt::format(
        "thread {} was found at {:#x} ({}), behind {}", t.tid, rip, where,
        t.position.block == kNoBlock ? "unknown code" : code_.describe(t.position.block));
  }
  begin_at(t, rip);
}

// Tells of the blocks between the thread's position and `rip`.  False when no way leads there.
bool Watcher::catch_up(Thread& t, uint64_t rip, bool asynchronous) {
  for (int i = 0; i < kFollowedMax && t.position.block != kNoBlock; ++i) {
    const CodeBlock& b = code_.block(t.position.block);
    const Mapped* mapped = mapped_of(t, t.position.block);
    if (mapped == nullptr) return false;
    const uint64_t end = b.end.value() + mapped->bias;
    if (t.position.behind_call) {
      // A signal found it in front of the next instruction: it has not tried to go on.
      if (rip == end && asynchronous) return true;
      follow(t, end, EdgeRole::kSystemCall);
      continue;
    }
    if (b.contains(LinkAddr(rip - mapped->bias))) return true;
    // A thread may be killed between its call's entry and the report of it.
    const bool in_call = b.how == BlockEnd::kSystemCall && asynchronous;
    if ((t.position.restarting || b.how == BlockEnd::kTrap || in_call) && rip == end) return true;
    if (!is_direct(b.how)) return false;
    follow(t, next_of(b).value() + mapped->bias, role_of(b.how));
  }
  return false;
}

// Emulates the thread's block from its beginning to its end.  False: it stays where `regs` say.
bool Watcher::emulate_block(Thread& t, isa::Registers& regs, const Mapped*& mapped) {
  const CodeBlock& b = code_.block(t.position.block);
  uint64_t at = b.begin.value();
  for (const isa::Operation& operation : b.body) {
    if (at + mapped->bias == regs.rip && !isa::execute(operation, mapped->bias, regs, *t.space)) {
      return false;
    }
    at += operation.size;
  }
  return regs.rip == (b.how == BlockEnd::kFallthrough ? b.end : b.last).value() + mapped->bias;
}

// A thread may be killed between its stop and this: its end will show it where the stop was, though
// what was emulated since then has been told.
void Watcher::put_registers(Thread& t, const user_regs_struct& regs) {
  if (!t.space->process().set_registers(t.tid, regs)) t.killed_at = regs.rip;
}

// From where the thread stands as far as no processor is needed, and then lets it go.
Status Watcher::advance(Thread& t, user_regs_struct& kernel_regs) {
  const bool settled = !t.position.behind_call && !t.position.restarting;
  if (settled && (cold_ || should_turn_cold())) return turn_cold(t, kernel_regs);
  if (t.in_interrupting) leave_stack(t, kernel_regs.rsp);
  isa::Registers regs = from_kernel(kernel_regs);
  const bool ahead = options_.ahead && is_alone(t);
  if (ahead && nobody_writes(t)) t.space->hold();
  const uint64_t began_at = regs.rip;
  bool changed = false;
  const bool by_processor = emulate(t, regs, ahead, changed);
  if (!t.space->release() && t.space->process().try_registers(t.tid, kernel_regs)) {
    lose(t, regs.rip, "after stores that could not be written");
  }
  if (by_processor) return opaque(t, regs, kernel_regs);
  to_kernel(regs, kernel_regs);
  if (changed || regs.rip != began_at) put_registers(t, kernel_regs);
  let_go(t, kernel_regs);
  return Ok{};
}

int Watcher::emulated_max(const Thread& t) const {
  if (t.space->turns.waiting.empty()) return kEmulatedMax;
  return static_cast<int>(std::clamp<uint64_t>(options_.turn_blocks, 1, kEmulatedMax));
}

// From block to block.  True: the next instruction is one that only the processor can do.
bool Watcher::emulate(Thread& t, isa::Registers& regs, bool ahead, bool& changed) {
  const int blocks_max = emulated_max(t);
  for (int i = 0; i < blocks_max && t.position.block != kNoBlock; ++i) {
    if (t.position.behind_call || t.position.restarting) break;
    const CodeBlock& b = code_.block(t.position.block);
    const Mapped* mapped = mapped_of(t, t.position.block);
    if (mapped == nullptr) break;
    const uint64_t before = regs.rip;
    const bool at_end = regs.rip == b.last.value() + mapped->bias;
    if (at_end && b.how == BlockEnd::kOpaque) return true;
    const bool branches =
        b.how == BlockEnd::kBranch || b.how == BlockEnd::kJump || b.how == BlockEnd::kCall;
    if (!(at_end && branches)) {
      const bool whole =
          ahead && b.simple && (branches || b.how == BlockEnd::kFallthrough) && !mapped->changing;
      if (!whole || !emulate_block(t, regs, mapped)) {
        changed = changed || regs.rip != before;
        break;
      }
      ++outcome_.emulated;
    }
    changed = true;
    if (b.how == BlockEnd::kFallthrough) {
      follow(t, regs.rip, EdgeRole::kFallthrough);
      continue;
    }
    const uint64_t at_branch = regs.rip;
    if (!isa::execute(b.branch, mapped->bias, regs, *t.space)) {
      regs.rip = at_branch;
      return true;
    }
    follow_branch(t, regs.rip);
  }
  return false;
}

// What only the processor can do: a branch that will fault, an instruction nobody emulates.
Status Watcher::opaque(Thread& t, const isa::Registers& regs, user_regs_struct& kernel_regs) {
  to_kernel(regs, kernel_regs);
  put_registers(t, kernel_regs);
  std::array<uint8_t, 2> bytes{};
  const bool read = t.space->read(regs.rip, bytes.data(), bytes.size());
  if (read && bytes[0] == 0xf3 && bytes[1] == 0x90) t.space->turns.over = true;  // pause
  single(t, regs.rip, 0);
  return Ok{};
}

// One instruction by the processor, with its breakpoint out of the way.
void Watcher::single(Thread& t, uint64_t rip, int signal) {
  const TargetAddr at(rip);
  t.lifted = t.space->breakpoints.contains(at) ? rip : 0;
  if (t.lifted != 0) t.space->breakpoints.retire(t.space->process(), at);
  t.motion = Motion::kSingle;
  tracee::resume_for_one_step(t.tid, signal);
}

bool Watcher::stop_at(Thread& t, BlockId id, const Mapped& mapped) {
  const TargetAddr at(code_.block(id).last.value() + mapped.bias);
  return t.space->breakpoints.insert(t.space->process(), at);
}

// Sets the breakpoint that will catch the thread.  kStep when none may stand on its way.
Motion Watcher::prepare(Thread& t, uint64_t rip) {
  std::array<BlockId, kChainMax> seen;
  size_t count = 0;
  BlockId id = t.position.block;
  if (id == kNoBlock) {
    const bool nowhere = t.space->at(rip) == nullptr && rip < kVsyscallBegin;
    return nowhere ? Motion::kRun : Motion::kStep;
  }
  if (t.position.behind_call) {
    const Mapped* mapped = t.space->at(rip);
    if (mapped == nullptr) return Motion::kRun;
    if (mapped->changing) return Motion::kStep;
    id = code_.arrive(code_.module(mapped->module), LinkAddr(rip - mapped->bias));
  }
  while (true) {
    const Mapped* mapped = mapped_of(t, id);
    if (is_stepped(t, id, mapped)) return Motion::kStep;
    const CodeBlock& b = code_.block(id);
    seen[count++] = id;
    if (b.how == BlockEnd::kBranch || b.how == BlockEnd::kOpaque) {
      return stop_at(t, id, *mapped) ? Motion::kRun : Motion::kStep;
    }
    if (!is_direct(b.how)) return Motion::kRun;  // the kernel stops it
    const uint64_t next = next_of(b).value() + mapped->bias;
    const Mapped* there = t.space->at(next);
    BlockId next_id = kNoBlock;
    if (there != nullptr && !there->changing) {
      next_id = code_.arrive(code_.module(there->module), LinkAddr(next - there->bias));
    }
    bool stop = next_id == kNoBlock || count == seen.size() || is_stepped(t, next_id, there);
    for (size_t i = 0; i < count; ++i) stop = stop || seen[i] == next_id;
    if (!stop) {
      id = next_id;
      continue;
    }
    // Here the chain has to be broken: at the last branch that was passed.
    while (count > 0 && code_.block(seen[count - 1]).how == BlockEnd::kFallthrough) --count;
    if (count == 0) return there == nullptr ? Motion::kRun : Motion::kStep;
    const Mapped* last = mapped_of(t, seen[count - 1]);
    return last != nullptr && stop_at(t, seen[count - 1], *last) ? Motion::kRun : Motion::kStep;
  }
}

// The kernel does what the page of old system calls stands for, and returns: it is caught there.
void Watcher::through_vsyscall(Thread& t, const user_regs_struct& regs, int signal) {
  uint64_t back = 0;
  t.motion = Motion::kRun;
  if (t.space->read(regs.rsp, &back, sizeof back) && t.space->at(back) != nullptr &&
      !t.space->breakpoints.contains(TargetAddr(back))) {
    t.space->breakpoints.insert(t.space->process(), TargetAddr(back));
    t.returns_to = back;
  }
  tracee::resume_watched(t.tid, signal);
}

void Watcher::let_go(Thread& t, const user_regs_struct& regs, int signal) {
  t.motion = prepare(t, regs.rip);
  if (t.motion == Motion::kRun) {
    tracee::resume_watched(t.tid, signal);
    return;
  }
  if (regs.rip >= kVsyscallBegin && t.position.block == kNoBlock) {
    return through_vsyscall(t, regs, signal);
  }
  if (t.space->breakpoints.contains(TargetAddr(regs.rip))) return single(t, regs.rip, signal);
  // A system call is stepped through by its own stops.
  std::array<uint8_t, 2> bytes{};
  const bool read =
      t.space->read(regs.rip, bytes.data(), 2) || t.space->read(regs.rip, &bytes[0], 1);
  if (read && bytes[0] == 0x0f && bytes[1] == 0x05) {
    t.motion = Motion::kRun;
    tracee::resume_watched(t.tid, signal);
    return;
  }
  t.stepped_from = regs.rip;
  t.stepped_pushf = read && (bytes[0] == 0x9c || (bytes[0] == 0x48 && bytes[1] == 0x9c));
  tracee::resume_for_one_step(t.tid, signal);
}

}  // namespace tally::verify
