// Frames that were open before the process began to count.  See ledger.h.
#include "engine/ledger.h"

namespace tally::engine {

using profile::AbnormalKind;

void Ledger::begin_in_mid_run(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef at,
                              const Ledger& parent, uint32_t parent_slot,
                              const std::string& detail) {
  bottoms_ = parent.bottoms_;
  interruptions_.inherit_from(parent.interruptions_, parent_slot, slot);
  enter(at, AbnormalKind::kThreadStart, detail);
  // The calls are known to the parent, whose stack is still the same.
  const elf::BackTrace trace = parent.back_trace(registers, parent_slot);
  for (size_t i = 1; i < trace.frames.size(); ++i) {
    const bool interrupted = trace.frames[i - 1].signal_frame;
    if (!trace.frames[i].signal_frame && !interrupted) ++inherited_[trace.frames[i].pc.value()];
  }
}

// A frame whose call is no code of ours: it was neither entered nor is it left.
bool Ledger::was_inherited(TargetAddr return_address) {
  auto it = inherited_.find(return_address.value());
  if (it == inherited_.end() || it->second == 0) return false;
  it->second -= 1;
  return true;
}

void Ledger::settle_inherited() {
  for (const auto& [return_address, times] : inherited_) {
    if (times == 0) continue;
    const BlockRef call = cache_.call_block_of(TargetAddr(return_address));
    if (!call.valid()) continue;  // never came back, or as an arrival that was counted
    for (uint64_t i = 0; i < times; ++i) {
      enter_unexecuted(call, AbnormalKind::kThreadStart, "called before the fork");
    }
  }
  inherited_.clear();
}

}  // namespace tally::engine
