// The ledger's part in jumps out of a stack: longjmp, exceptions, and switches to other stacks.
//
// A procedure that loads the stack pointer and jumps away (cache/events.h) says who was active when
// it was entered (`snapshot`), and, with all registers loaded, where it goes (`commit`).  That is
// one of
//
//   farther out on its own stack      the procedures between are left for good (longjmp, an
//                                     exception)
//   a stack that was left before      those between where it was left and where it goes on
//   a stack nobody was on             it begins there: nobody waits on it
//
// and unless the first is plain, call frame information from there decides (left_stacks.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "ledger/ledger.h"
#include "ledger/undescribed_frames.h"

namespace tally::engine {

using profile::AbnormalKind;

namespace {

constexpr const char* kJumped = "left by longjmp or an exception";
constexpr const char* kSwitched =
    "the program switches stacks in a way that Tally cannot follow; procedures that are left "
    "waiting on a stack nobody returns to are off by one";

}  // namespace

void Ledger::snapshot(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& registers) {
  attach_traces_.erase(slot);
  jumps_.erase(slot);
  snapshots_[{slot, unit}] = back_trace(registers, slot);
}

// An exception's handler may begin right behind a call: who returns to it is counted as one that
// comes back from there.
void Ledger::land_behind_call(TargetAddr destination) {
  const BlockRef call = cache_.call_block_of(destination);
  if (!call.valid() || ends_by_itself(call)) return;
  enter_unexecuted(call, AbnormalKind::kNonLocalJump,
                   "a jump or an exception's handler went on behind this call");
}

void Ledger::commit(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& after,
                    bool by_return) {
  snapshot_of_attach(slot, unit);
  auto it = snapshots_.find({slot, unit});
  if (it == snapshots_.end()) return;
  const elf::BackTrace trace = it->second;
  const Landing landing{after, by_return};
  if (by_return) announced_[slot] = landing.pc();
  booker_ = slot;
  const auto& frames = trace.frames;
  // A procedure at the very bottom, without call frame information, has nobody to abandon.
  if (frames.empty() || (frames.front().cfa.value() == 0 && left_.empty())) return;
  const uint64_t end = frames.front().cfa.value();
  const uint64_t stack_pointer = landing.stack_pointer();
  // A return of the procedure in the ordinary way, or a tail call.
  if (stack_pointer < end && end - stack_pointer <= 16) return;
  const bool to_caller = frames.size() > 1 && frames[1].pc == landing.pc();
  // Arguments on the stack may be gone with it; the caller's own return address is not.
  const bool in_caller = stack_pointer == end || (to_caller && stack_pointer > end &&
                                                  stack_pointer < frames[1].cfa.value());
  if (by_return && to_caller && in_caller) return;
  // The frames that are left are gone; a second jump from the same entry (an exception that passes
  // several cleanups) starts from a new snapshot.
  snapshots_.erase(it);
  if (by_return) {
    auto left = left_.take_returned_to(stack_pointer, landing.pc(),
                                       [&](const auto& other) { return is_intact(other); });
    if (left) {
      leave_stack(slot, unit, trace);
      return go_on(slot, unit, std::move(*left), landing);
    }
  }
  const std::optional<size_t> target = frame_holding(trace, stack_pointer);
  if (target && is_within_procedure(trace, *target, landing.pc())) {
    return jump_within(slot, unit, trace, *target, landing);
  }
  switch_stack(slot, unit, trace, landing);
}

void Ledger::return_slot(uint32_t slot, TargetAddr stack_pointer, TargetAddr at) {
  constexpr uint64_t kBelowBytesMax = 512;
  const uint64_t below_bytes = at - stack_pointer;
  const TargetAddr from = below_bytes <= kBelowBytesMax ? stack_pointer : at;
  std::vector<uint64_t> words((at - from) / sizeof(uint64_t) + 1);
  const size_t size_bytes = words.size() * sizeof words[0];
  // Where it cannot be read, the program faults, too.
  if (!process_.read_memory(from, words.data(), size_bytes)) return;
  return_slots_[{slot, at}] = std::move(words);
}

// Whoever made the call waits no more: what was called comes back elsewhere.
void Ledger::commit_return(uint32_t slot, TargetAddr at) {
  const auto noted = return_slots_.extract({slot, at});
  uint64_t destination = 0;
  if (noted.empty() || !process_.read_memory(at, &destination, sizeof destination)) return;
  const std::vector<uint64_t>& before = noted.mapped();
  if (before.back() == destination) return;
  // Where arguments lay, the return address lay below them, and may only have been moved up.
  const auto own = std::ranges::find_if(before.rbegin(), before.rend(), [&](uint64_t word) {
    return cache_.call_block_of(TargetAddr(word)).valid();
  });
  if (own != before.rend() && *own == destination) return;
  announced_[slot] = TargetAddr(destination);
  booker_ = slot;
  if (own != before.rend()) {
    leave(cache_.call_block_of(TargetAddr(*own)), AbnormalKind::kNonLocalJump,
          "what it called came back elsewhere");
  }
  land_behind_call(TargetAddr(destination));
}

// By conservation of flow nothing is wrong then: who waits for the call seems to have had it back.
// A switch that is compiled against speculation leads to its cases that way, too, and leaves no
// call open; the two cannot be told apart here.
void Ledger::returned(uint32_t slot, TargetAddr pc) {
  if (cache_.call_block_of(pc).valid() || is_inherited(pc)) return;
  if (!is_described(pc) || is_planted(pc) || interruptions_.is_restorer(pc)) return;
  const auto announced = announced_.find(slot);
  if (announced != announced_.end() && announced->second == pc) return;
  const Module& module = *modules_.containing(pc);
  issue(
      fmt::format("{}+{:#x}", module.path, module.to_link(pc).value()),
      "a return led here, behind no call; if a call was left open for that, it counts as one that "
      "came back");
}

// Nobody is left, but where it leads a call may seem to come back.
void Ledger::commit_jump_by_return(uint32_t slot, uint32_t unit,
                                   const elf::UnwindRegisters& after) {
  const Landing landing{after, true};
  announced_[slot] = landing.pc();
  booker_ = slot;
  land_behind_call(landing.pc());
  jumps_[slot] = {unit, landing.stack_pointer(), true,
                  open_behind(back_trace(after, slot), 1, landing.pc())};
}

// Whether the return addresses on a stack are still there.
bool Ledger::is_intact(const elf::BackTrace& trace) const {
  const auto& frames = trace.frames;
  for (size_t i = 1; i < frames.size(); ++i) {
    if (frames[i].signal_frame || frames[i - 1].signal_frame) continue;
    uint64_t back = 0;
    const TargetAddr at = frames[i - 1].cfa - sizeof back;
    if (!process_.read_memory(at, &back, sizeof back) || back != frames[i].pc.value()) return false;
  }
  return true;
}

// Whether `pc` is in the middle of the procedure of a frame, and nobody has left a stack that is
// part of that frame.
bool Ledger::is_within_procedure(const elf::BackTrace& trace, size_t target, TargetAddr pc) const {
  constexpr uint64_t kOutermostBytes = 4096;
  if (target == 0 || target >= trace.frames.size()) return false;
  const elf::Frame& frame = trace.frames[target];
  const uint64_t begin = trace.frames[target - 1].cfa.value();
  const uint64_t end = frame.cfa.value() == 0 ? begin + kOutermostBytes : frame.cfa.value();
  if (left_.any_within(begin, end)) return false;
  const Module* module = modules_.containing(pc);
  if (module == nullptr) return false;
  const auto range = module->image->unwind_range_at(module->to_link(pc));
  return range && range->begin != module->to_link(pc) && module->mapped.contains(frame.pc - 1) &&
         range->contains(module->to_link(frame.pc - 1));
}

// Procedures up to that of frame `target` are left: it goes on elsewhere than behind its open call.
void Ledger::jump_within(uint32_t slot, uint32_t unit, const elf::BackTrace& trace, size_t target,
                         const Landing& landing) {
  // Or right behind it: then that call has come back, and those called from there are left.
  const bool returned = landing.by_return && target > 0 && target < trace.frames.size() &&
                        trace.frames[target].pc == landing.pc();
  if (landing.by_return && !returned) land_behind_call(landing.pc());
  const size_t end = std::min(returned ? target : target + 1, trace.frames.size());
  for (size_t i = 1; i < end; ++i) {
    close_frame(trace, slot, i, AbnormalKind::kNonLocalJump, kJumped);
  }
  const bool lands = landing.by_return && !returned;
  jumps_[slot] = {unit, landing.stack_pointer(), landing.by_return,
                  open_behind(trace, end, lands ? landing.pc() : TargetAddr())};
}

// Whose calls are open when a jump is made that leaves the frames before `first`; `landed` (unless
// it is 0) is behind the call of somebody who was entered there (land_behind_call).
elf::BackTrace Ledger::open_behind(const elf::BackTrace& trace, size_t first, TargetAddr landed) {
  elf::BackTrace open = trace;
  if (is_complete(trace)) open.end = elf::TraceEnd::kOutermost;
  size_t left = std::min(first, open.frames.size());
  if (left > 0 && open.frames[left - 1].signal_frame) --left;  // says what the next one is
  open.frames.erase(open.frames.begin(), open.frames.begin() + static_cast<ptrdiff_t>(left));
  const BlockRef call = landed.value() == 0 ? BlockRef{} : cache_.call_block_of(landed);
  if (call.valid() && !ends_by_itself(call)) {
    elf::Frame frame;
    frame.pc = landed;
    open.frames.insert(open.frames.begin(), frame);
  }
  return open;
}

// Whether control stays within the innermost frame of `trace`: code without call frame information
// calls parts of itself.  What back-traces from there do not know may be missing.
bool Ledger::is_within_own_frame(const elf::BackTrace& trace, const elf::BackTrace& there) {
  const auto& was = trace.frames;
  const auto& now = there.frames;
  if (now.size() < 2 || now.size() > was.size()) return false;
  if (now.front().cfa.value() == 0 || now.front().cfa != was.front().cfa) return false;
  for (size_t i = 1; i < now.size(); ++i) {
    if (now[i].pc != was[i].pc) return false;
    const bool last = i + 1 == now.size();
    if (now[i].cfa != was[i].cfa && !(last && now[i].cfa.value() == 0)) return false;
  }
  return true;
}

// TALLY_DEBUG: who was active where a stack is left or abandoned, and who is shown where it goes.
void Ledger::explain_switch(uint32_t slot, const char* what, const elf::BackTrace& trace,
                            const elf::BackTrace& there, const Landing& landing) const {
  if (std::getenv("TALLY_DEBUG") == nullptr) return;
  std::string text = fmt::format("tally: debug: process {} slot {}: {}, by {} to {} rsp {:#x}\n",
                                 process_.pid(), slot, what, landing.by_return ? "return" : "jump",
                                 modules_.name_of(landing.pc()), landing.stack_pointer());
  for (const auto& [title, frames] : {std::pair{"from", &trace}, std::pair{"there", &there}}) {
    for (const elf::Frame& frame : frames->frames) {
      text += fmt::format("tally: debug:   {} {} cfa {:#x}\n", title, modules_.name_of(frame.pc),
                          frame.cfa.value());
    }
    if (!is_complete(*frames)) text += fmt::format("tally: debug:   {} incomplete\n", title);
  }
  std::fputs(text.c_str(), stderr);
}

// Control goes where the stack pointer alone does not say whose stack it is.
void Ledger::switch_stack(uint32_t slot, uint32_t unit, const elf::BackTrace& trace,
                          const Landing& landing) {
  const Module* module = modules_.containing(landing.pc());
  const std::optional<LinkRange> range =
      module == nullptr ? std::nullopt
                        : module->image->unwind_range_at(module->to_link(landing.pc()));
  const bool described = range.has_value();
  // Where this stack began says nothing about the others.
  const elf::BackTrace there = back_trace_to(std::nullopt, landing.registers, slot);
  if (!described && is_within_own_frame(trace, there)) {
    snapshots_[{slot, unit}] = trace;
    return;
  }
  for (size_t i = 0; described && i < trace.frames.size(); ++i) {
    if (!is_same_stack(trace, i, there)) continue;
    if (i == 0) {  // to another place of its own activation
      snapshots_[{slot, unit}] = trace;
      return;
    }
    explain_switch(slot, "a jump on its own stack", trace, there, landing);
    return jump_within(slot, unit, trace, i, landing);
  }
  if (auto left = left_.take_shown_by(there)) {
    explain_switch(slot, "back to a stack that was left", trace, there, landing);
    leave_stack(slot, unit, trace);
    return go_on(slot, unit, std::move(*left), landing);
  }
  // A new stack's bottom is where control begins; nothing else may say so.  One that somebody was
  // on before Tally came began farther out.
  const bool attached = inherited_kind_ == AbnormalKind::kAttach;
  const bool needs_bottom = !attached && !is_complete(there);
  elf::BackTrace first =
      needs_bottom ? back_trace_to(landing.stack_pointer(), landing.registers, slot) : there;
  // Code that nothing describes may stand there, too, to begin with.
  const bool begins =
      !described && undescribed_frames(slot).begins_stack(landing.pc(), landing.stack_pointer());
  if (begins) {
    first.frames.resize(1);
    first.end = elf::TraceEnd::kOutermost;
  }
  const bool followed = begins || (described && is_complete(first));
  if (const auto target = frame_holding(trace, landing.stack_pointer()); target && !followed) {
    return jump_within(slot, unit, trace, *target, landing);
  }
  explain_switch(slot, followed ? "a new stack" : "a stack that cannot be followed", trace, first,
                 landing);
  if (!followed) name_switched_stacks(kSwitched);
  leave_stack(slot, unit, trace);
  begin_stack(slot, first, landing);
  const bool at_entry = described && range->begin == module->to_link(landing.pc());
  // Undescribed code jumps on to the first procedure that has a description, whose return address
  // it has put right there.
  constexpr uint64_t kReturnAddressBytes = 8;
  const uint64_t begin = landing.stack_pointer() - (begins ? kReturnAddressBytes : 0);
  if (!attached || at_entry) stack_begins_[slot] = begin;
  jumps_[slot] = {unit, landing.stack_pointer(), landing.by_return, elf::BackTrace()};
}

// Everybody but the procedure that switches waits.
void Ledger::leave_stack(uint32_t slot, uint32_t unit, const elf::BackTrace& trace) {
  LeftStack stack;
  stack.trace = trace;
  stack.unit = unit;
  stack.bottom = bottom_of(slot);
  stack.slots = {slot};
  for (const elf::Frame& frame : trace.frames) {
    if (!frame.signal_frame) continue;
    if (auto record = interruptions_.take(slot, frame.context)) {
      stack.interruptions.push_back(*record);
    }
  }
  const auto waits = [&](uint32_t of, const elf::BackTrace& snapshot) {
    return of != unit && !snapshot.frames.empty() &&
           std::any_of(trace.frames.begin(), trace.frames.end(), [&](const elf::Frame& frame) {
             return frame.cfa.value() != 0 && frame.cfa == snapshot.frames.front().cfa;
           });
  };
  auto it = snapshots_.lower_bound({slot, 0});
  while (it != snapshots_.end() && it->first.first == slot) {
    if (waits(it->first.second, it->second)) stack.snapshots[it->first.second] = it->second;
    it = snapshots_.erase(it);
  }
  keep_interruptions(slot);
  attach_traces_.erase(slot);
  stack_begins_.erase(slot);
  if (trace.frames.front().cfa.value() != 0) left_.add(std::move(stack));
}

// A stack that was left is gone back to: who waits there from `found.frame` outwards is active
// again, and who was called from there is left for good.
void Ledger::go_on(uint32_t slot, uint32_t unit, LeftStacks::Found found, const Landing& landing) {
  LeftStack& stack = found.stack;
  const elf::BackTrace& trace = stack.trace;
  const bool returned =
      landing.by_return && found.frame > 0 && trace.frames[found.frame].pc == landing.pc();
  const size_t open = returned ? found.frame : found.frame + 1;
  for (const Interruption& record : stack.interruptions) interruptions_.push(slot, record);
  keep_interruptions(slot);
  if (stack.bottom) stack_begins_[slot] = *stack.bottom;
  for (auto& [of, snapshot] : stack.snapshots) snapshots_[{slot, of}] = std::move(snapshot);
  if (found.frame == 0) snapshots_[{slot, stack.unit}] = trace;
  const std::optional<uint32_t> left_by = stack.slots.front();
  if (stack.inherited) {
    inherit_frames(trace, slot, open);
  } else {
    booker_ = left_by.value_or(kEndedSlot);
    for (size_t i = 1; i < open && i < trace.frames.size(); ++i) {
      close_frame(trace, slot, i, AbnormalKind::kNonLocalJump, kJumped);
    }
    booker_ = slot;
    if (left_by != slot) move_frames(trace, open, left_by, slot);
  }
  const bool lands = landing.by_return && !returned;
  if (lands) land_behind_call(landing.pc());
  jumps_[slot] = {unit, landing.stack_pointer(), landing.by_return,
                  open_behind(trace, open, lands ? landing.pc() : TargetAddr())};
}

// Nobody has been on this stack.  Callers that are found there all the same were called before
// Tally came, or their frames were made by the program itself.
void Ledger::begin_stack(uint32_t slot, const elf::BackTrace& there, const Landing& landing) {
  const bool attached = inherited_kind_ == AbnormalKind::kAttach;
  const bool behind_call = landing.by_return && !cache_.is_procedure_entry(landing.pc());
  if (attached) {
    inherit_frames(there, slot, 1);
    if (behind_call) ++inherited_[{landing.pc().value(), slot}];
  } else {
    if (landing.by_return) land_behind_call(landing.pc());
    const bool unknown =
        std::any_of(there.frames.begin() + (there.frames.empty() ? 0 : 1), there.frames.end(),
                    [&](const elf::Frame& f) { return cache_.call_block_of(f.pc).valid(); });
    if (unknown) name_switched_stacks(kSwitched);
  }
  attach_traces_[slot] = there;
}

std::optional<uint64_t> Ledger::bottom_of(uint32_t slot) const {
  const auto it = stack_begins_.find(slot);
  return it == stack_begins_.end() ? std::nullopt : std::optional(it->second);
}

// What lies above the place where a stack began was put there for its first procedure to return to.
bool Ledger::is_below(uint64_t bottom, const elf::UnwindRegisters& frame) {
  constexpr uint64_t kPlantedBytesMax = 256;
  const uint64_t stack_pointer = frame.value[elf::kDwarfRsp];
  return frame.known[elf::kDwarfRsp] && stack_pointer > bottom &&
         stack_pointer - bottom <= kPlantedBytesMax;
}

// For the totals of threads: who waits was called by one thread and goes on in another.
void Ledger::move_frames(const elf::BackTrace& trace, size_t first, std::optional<uint32_t> from,
                         uint32_t to) {
  for (size_t i = std::max<size_t>(first, 1); i < trace.frames.size(); ++i) {
    if (trace.frames[i].signal_frame) continue;
    if (trace.frames[i - 1].signal_frame) {
      stacks_switched_ = true;  // where it was interrupted is not taken apart
      continue;
    }
    const BlockRef call = cache_.call_block_of(trace.frames[i].pc);
    if (!call.valid() || ends_by_itself(call)) continue;
    const Unit& unit = cache_.unit(call.unit);
    if (from) {
      booker_ = *from;
      note({BookingKind::kLeft, call.unit, call.block}, 1);
    }
    booker_ = to;
    note({BookingKind::kEntered, call.unit, call.block}, 1);
    note({BookingKind::kUnexecuted, call.unit, 0},
         static_cast<int64_t>(unit.procedure.blocks[call.block].insn_count));
    note({BookingKind::kUncalled, call.unit, call.block}, 1);
    if (unit.plan.block_counter[call.block] != translate::kNoCounter) {
      note({BookingKind::kUncounted, call.unit, call.block}, 1);
    }
  }
  booker_ = to;
}

// The thread that left a stack ends.  As far as it is concerned, nobody there ever goes on.
void Ledger::note_waiting(LeftStack& stack, uint32_t slot) {
  auto& frames = stack.trace.frames;
  for (size_t i = 1; i < frames.size(); ++i) {
    const BlockRef call = cache_.call_block_of(frames[i].pc);
    if (call.valid()) {
      if (!ends_by_itself(call)) note({BookingKind::kLeft, call.unit, call.block}, 1);
    } else if (was_inherited(frames[i].pc, slot)) {
      frames[i].pc = TargetAddr();
    }
  }
}

void Ledger::forget(uint32_t slot) {
  // What signals had interrupted there is taken apart now: nobody else is expected to go on there.
  for (const LeftStack& stack : left_.take_interrupted(slot)) {
    close_left_stack(stack, AbnormalKind::kThreadExit, "left waiting by a thread that ended");
  }
  booker_ = slot;
  left_.disown(slot, [&](LeftStack& stack) { note_waiting(stack, slot); });
  settle_inherited(slot);
  interruptions_.forget(slot);
  keep_interruptions(slot);
  attach_traces_.erase(slot);
  returning_.erase(slot);
  entering_.erase(slot);
  stack_begins_.erase(slot);
  jumps_.erase(slot);
  births_.erase(slot);
  announced_.erase(slot);
  std::erase_if(return_slots_, [&](const auto& entry) { return entry.first.first == slot; });
  std::erase_if(snapshots_, [&](const auto& entry) { return entry.first.first == slot; });
}

void Ledger::close_left_stack(const LeftStack& stack, AbnormalKind kind,
                              const std::string& detail) {
  if (stack.inherited) return;  // nobody there was entered, nor is left
  for (const std::optional<uint32_t>& owner : stack.slots) {
    const uint32_t slot = owner.value_or(kEndedSlot);
    booker_ = slot;
    for (const Interruption& record : stack.interruptions) interruptions_.push(slot, record);
    close_frames(stack.trace, slot, 1, kind, detail);
  }
}

void Ledger::close_left_stacks(AbnormalKind kind, const std::string& detail) {
  for (const LeftStack& stack : left_.take_all()) close_left_stack(stack, kind, detail);
}

void Ledger::stacks_unmapped(TargetRange range) {
  if (left_.empty()) return;
  for (const LeftStack& stack : left_.take_within(range)) {
    close_left_stack(stack, AbnormalKind::kOther, "left waiting on a stack that was given back");
  }
}

}  // namespace tally::engine
