// Frames that were open before the process began to count.  See ledger.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ledger/ledger.h"

namespace tally::engine {

using profile::AbnormalKind;

void Ledger::begin_in_mid_run(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef at,
                              const Ledger& parent, uint32_t parent_slot,
                              const elf::UnwindRegisters* left, const std::string& detail) {
  booker_ = slot;
  left_.inherit(parent.left_);
  if (left != nullptr) {
    LeftStack makers;
    makers.trace = parent.back_trace(*left, parent_slot);
    makers.inherited = true;
    makers.slots.emplace_back();
    if (!makers.trace.frames.empty()) left_.add(std::move(makers));
  } else if (const auto bottom = parent.bottom_of(parent_slot)) {
    stack_begins_[slot] = *bottom;
  }
  bottoms_ = parent.bottoms_;
  interruptions_.inherit_from(parent.interruptions_, parent_slot, slot);
  enter_block(at, AbnormalKind::kThreadStart, detail);
  keep_where(slot, at);
  // The calls are known to the parent, whose stack is still the same.
  const elf::BackTrace trace = parent.back_trace(registers, parent_slot);
  inherit_frames(trace, slot, 1);
  attach_traces_[slot] = trace;
}

// Those from frame `first` on.
void Ledger::inherit_frames(const elf::BackTrace& trace, uint32_t slot, size_t first) {
  for (size_t i = first; i < trace.frames.size(); ++i) {
    const bool interrupted = i > 0 && trace.frames[i - 1].signal_frame;
    if (!trace.frames[i].signal_frame && !interrupted)
      ++inherited_[{trace.frames[i].pc.value(), slot}];
  }
}

// Handlers that were running already.  What they interrupted is entered when they return to it, as
// any place that control comes to by no branch.
void Ledger::inherit_handlers(const elf::BackTrace& trace, uint32_t slot) {
  constexpr uint64_t kRegistersOffset = 40;  // of the general registers in the kernel's ucontext
  for (const elf::Frame& frame : trace.frames) {
    if (!frame.signal_frame) continue;
    std::array<uint64_t, 17> saved{};
    const TargetAddr at(frame.context + kRegistersOffset);
    if (!process_.read_memory(at, saved.data(), sizeof saved)) continue;  // lost anyway
    Interruption record;
    record.context = frame.context;
    record.inherited = true;
    record.position.kind = Position::Kind::kOutside;
    user_regs_struct& r = record.registers;
    r.r8 = saved[0], r.r9 = saved[1], r.r10 = saved[2], r.r11 = saved[3];
    r.r12 = saved[4], r.r13 = saved[5], r.r14 = saved[6], r.r15 = saved[7];
    r.rdi = saved[8], r.rsi = saved[9], r.rbp = saved[10], r.rbx = saved[11];
    r.rdx = saved[12], r.rax = saved[13], r.rcx = saved[14], r.rsp = saved[15];
    r.rip = saved[16];
    record.position.pc = TargetAddr(r.rip);
    interruptions_.note_restorer(frame.pc);
    interruptions_.push(slot, record);
  }
}

void Ledger::attach_thread(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef inside,
                           BlockRef at) {
  booker_ = slot;
  inherited_kind_ = AbnormalKind::kAttach;
  const elf::BackTrace trace = back_trace(registers, slot);
  inherit_frames(trace, slot, 1);
  inherit_handlers(trace, slot);
  attach_traces_[slot] = trace;
  if (trace.end != elf::TraceEnd::kOutermost) {
    issue("back-trace",
          fmt::format("the stack of a thread could not be followed to its end when Tally attached "
                      "({}); procedures farther out may be off by one",
                      trace.detail));
  }
  if (inside.valid()) {
    enter_unexecuted(inside, AbnormalKind::kAttach, "was active when Tally attached");
  } else if (at.valid()) {
    attached_[at] += 1;
  }
}

// A procedure that was active at the attach and jumps away had its snapshot taken then, as it were:
// the stack from its frame outwards.
void Ledger::snapshot_of_attach(uint32_t slot, uint32_t unit_id) {
  auto it = attach_traces_.find(slot);
  if (it == attach_traces_.end() || snapshots_.contains({slot, unit_id})) return;
  const Unit& unit = cache_.unit(unit_id);
  auto& frames = it->second.frames;
  for (size_t i = 0; i < frames.size(); ++i) {
    const TargetAddr pc = i == 0 ? frames[i].pc : frames[i].pc - 1;
    if (!unit.module->mapped.contains(pc) ||
        !unit.procedure.range.contains(unit.module->to_link(pc))) {
      continue;
    }
    elf::BackTrace outwards = it->second;
    outwards.frames.erase(outwards.frames.begin(),
                          outwards.frames.begin() + static_cast<ptrdiff_t>(i));
    snapshots_[{slot, unit_id}] = std::move(outwards);
    break;
  }
  attach_traces_.erase(it);
}

// A frame whose call is no code of ours: it was neither entered nor is it left.
bool Ledger::was_inherited(TargetAddr return_address, uint32_t slot) {
  const std::pair key(return_address.value(), slot);
  auto it = inherited_.find(key);
  if (it == inherited_.end() || it->second == 0) return false;
  it->second -= 1;
  if (recording_ != nullptr) {
    recording_->push_back([=](Ledger& l) { l.inherited_[key] += 1; });
  }
  return true;
}

// Whether a frame with this return address was open in some thread before our time.
bool Ledger::is_inherited(TargetAddr return_address) const {
  const auto it = inherited_.lower_bound({return_address.value(), 0});
  return it != inherited_.end() && it->first.first == return_address.value();
}

void Ledger::settle_inherited(uint32_t slot) {
  booker_ = slot;
  std::erase_if(inherited_, [&](const auto& entry) {
    if (entry.first.second != slot) return false;
    enter_inherited(TargetAddr(entry.first.first), entry.second);
    return true;
  });
}

void Ledger::drop_inherited(uint32_t slot) {
  std::erase_if(inherited_, [&](const auto& entry) { return entry.first.second == slot; });
}

void Ledger::settle_inherited() {
  booker_ = kInheritedSlot;
  for (const auto& [key, times] : inherited_) enter_inherited(TargetAddr(key.first), times);
  inherited_.clear();
}

void Ledger::enter_inherited(TargetAddr return_address, uint64_t times) {
  if (times == 0) return;
  const BlockRef call = cache_.call_block_of(return_address);
  if (!call.valid()) return;  // never came back, or as an arrival that was counted
  const bool forked = inherited_kind_ == AbnormalKind::kThreadStart;
  for (uint64_t i = 0; i < times; ++i) {
    enter_unexecuted(call, inherited_kind_,
                     forked ? "called before the fork" : "was active when Tally attached");
  }
}

}  // namespace tally::engine
