// Calls that are open when their procedures are translated again.  See ledger.h.
#include "ledger/ledger.h"

#include <algorithm>

namespace tally::engine {

// Who is inside a handler, or waits on another stack, or has frames from before a fork or those of
// the thread that made it, is known by the unit that it was in then.
bool Ledger::is_plain(uint32_t slot) const {
  const bool shares_frames =
      std::ranges::any_of(births_, [](const auto& birth) { return birth.second.inherits_frames; });
  return kept_ == nullptr && !stacks_switched_ && left_.empty() && inherited_.empty() &&
         !shares_frames && attach_traces_.empty() && stack_begins_.empty() &&
         interruptions_.of(slot).empty();
}

// The frames that a longjmp leaves are closed in front of its last instruction; where that leads is
// told by the stack pointer.
bool Ledger::may_be_jumping(uint32_t slot, Way way, const elf::UnwindRegisters& there) const {
  const auto jump = jumps_.find(slot);
  return jump != jumps_.end() && jump->second.by_return == (way == Way::kReturn) &&
         jump->second.stack_pointer == there.value[elf::kDwarfRsp];
}

bool Ledger::is_described(TargetAddr pc) const {
  const Module* module = modules_.containing(pc);
  return module != nullptr && module->image->unwind_range_at(module->to_link(pc)).has_value();
}

// Where call frame information says what the stack looks like behind a call that has come back:
// there, which matters if the callee has taken arguments with it.  But if no more of the procedure
// lies behind the call, what is there may be another's.
TargetAddr Ledger::described_by(TargetAddr back) const {
  const Module* module = modules_.containing(back - 1);
  if (module == nullptr) return back - 1;
  const auto range = module->image->unwind_range_at(module->to_link(back - 1));
  return range && range->contains(module->to_link(back)) ? back : back - 1;
}

// The call that a return comes back from is open until it has come back; a jump's own procedure has
// none.
std::optional<std::vector<BlockRef>> Ledger::open_calls(uint32_t slot, Way way,
                                                        const elf::UnwindRegisters& there) const {
  if (!is_plain(slot) || may_be_jumping(slot, way, there)) return std::nullopt;
  Start start{there, TargetAddr(there.value[elf::kDwarfPc]), way == Way::kReturn};
  if (start.at_return_address)
    start.registers.value[elf::kDwarfPc] = described_by(start.pc).value();
  if (!is_described(TargetAddr(start.registers.value[elf::kDwarfPc]))) return std::nullopt;
  return calls_of(frames_from(start, slot));
}

std::optional<std::vector<BlockRef>> Ledger::open_calls_at(const Position& position,
                                                           const user_regs_struct& regs,
                                                           uint32_t slot) {
  using Kind = Position::Kind;
  if (position.kind != Kind::kInBlock && position.kind != Kind::kBetween) return std::nullopt;
  if (!is_plain(slot) || is_unborn(position, regs, slot)) return std::nullopt;
  const std::optional<Start> start = start_at(position, regs);
  if (!start || !is_described(TargetAddr(start->registers.value[elf::kDwarfPc]))) {
    return std::nullopt;
  }
  return calls_of(open_frames(position, *start, slot));
}

// A call whose flow has an edge of its own, should it not come back, may come back all the same:
// then to the new unit, while the old one would have it that it never did.
bool Ledger::may_come_back(BlockRef call) const {
  const cfg::Procedure& p = cache_.unit(call.unit).procedure;
  return !ends_by_itself(call) ||
         p.edge_of_kind(p.blocks[call.block], cfg::EdgeKind::kCallReturn).has_value();
}

// Nothing where one of the frames is not a call for sure.
std::optional<std::vector<BlockRef>> Ledger::calls_of(const OpenFrames& open) const {
  const elf::BackTrace& trace = open.trace;
  if (!is_complete(trace)) return std::nullopt;
  std::vector<BlockRef> calls;
  for (size_t i = open.first; i < trace.frames.size(); ++i) {
    const elf::Frame& frame = trace.frames[i];
    if (frame.signal_frame) return std::nullopt;
    const BlockRef call = cache_.call_block_of(frame.pc);
    // Where nothing describes a frame, who called there is a guess.  At the end there may be a word
    // that is no address of code; an address that no call comes back to is that of a stack that
    // is otherwise than its description says.
    const bool outermost = i > 0 && i + 1 == trace.frames.size();
    const bool is_no_code = outermost && modules_.at(frame.pc) == nullptr;
    if (!call.valid() && !is_no_code) return std::nullopt;
    if (!outermost && !is_described(frame.pc - 1)) return std::nullopt;
    if (call.valid() && may_come_back(call)) calls.push_back(call);
  }
  return calls;
}

// The unit that made the call is left there; its successor is entered behind it, as if it had made
// the call without executing anything.
void Ledger::hand_over(uint32_t slot, std::span<const BlockRef> calls) {
  booker_ = slot;
  for (const BlockRef& call : calls) {
    const Unit& from = cache_.unit(call.unit);
    if (!from.renewed_by) continue;
    const Unit& to = cache_.unit(*from.renewed_by);
    handed_over_[{from.id, call.block}].from += 1;
    handed_over_[{to.id, call.block}].to += 1;
    note({BookingKind::kLeft, from.id, call.block}, 1);
    note({BookingKind::kEntered, to.id, call.block}, 1);
    note({BookingKind::kUnexecuted, to.id, 0}, to.procedure.blocks[call.block].insn_count);
    note({BookingKind::kUncalled, to.id, call.block}, 1);
    if (to.plan.block_counter[call.block] != translate::kNoCounter) {
      note({BookingKind::kUncounted, to.id, call.block}, 1);
    }
  }
}

}  // namespace tally::engine
