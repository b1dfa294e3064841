// Terms of the ledger.  See ledger.h; positions are found in locate.cpp.
#include "ledger/ledger.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

#include "ledger/kept_run.h"
#include "ledger/undescribed_frames.h"

namespace tally::engine {

using profile::AbnormalKind;

namespace {
constexpr size_t kFramesMax = 100000;
}  // namespace

// Handlers may have stacks of their own, so that addresses grow only from signal to signal.
std::optional<size_t> frame_holding(const elf::BackTrace& trace, uint64_t stack_pointer) {
  const auto& frames = trace.frames;
  // The outermost frame may have no known extent; it is taken to be small.
  constexpr uint64_t kOutermostBytes = 4096;
  size_t begin = 0;
  while (begin < frames.size()) {
    size_t end = begin;
    uint64_t highest = 0;
    while (end < frames.size() && !frames[end].signal_frame) {
      highest = std::max(highest, frames[end++].cfa.value());
    }
    if (end == frames.size() && frames.back().cfa.value() == 0) highest += kOutermostBytes;
    const uint64_t lowest = (begin == 0 ? frames.front() : frames[begin - 1]).cfa.value();
    if (stack_pointer >= lowest && stack_pointer <= highest) {
      size_t target = begin;
      while (target < end && frames[target].cfa.value() != 0 &&
             frames[target].cfa.value() <= stack_pointer) {
        ++target;
      }
      return target;
    }
    begin = end + 1;
  }
  return std::nullopt;
}

user_regs_struct registers_put_down(const uint8_t* block, const user_regs_struct& regs) {
  std::array<uint64_t, 16> v{};  // in encoding order
  memcpy(v.data(), block + translate::tcb::kRegisters, sizeof v);
  user_regs_struct r = regs;
  r.rax = v[0], r.rcx = v[1], r.rdx = v[2], r.rbx = v[3];
  r.rsp = v[4], r.rbp = v[5], r.rsi = v[6], r.rdi = v[7];
  r.r8 = v[8], r.r9 = v[9], r.r10 = v[10], r.r11 = v[11];
  r.r12 = v[12], r.r13 = v[13], r.r14 = v[14], r.r15 = v[15];
  return r;
}

elf::UnwindRegisters unwind_registers(const user_regs_struct& regs) {
  elf::UnwindRegisters u;
  u.value = {regs.rax, regs.rdx, regs.rcx, regs.rbx, regs.rsi, regs.rdi,
             regs.rbp, regs.rsp, regs.r8,  regs.r9,  regs.r10, regs.r11,
             regs.r12, regs.r13, regs.r14, regs.r15, regs.rip};
  u.known.fill(true);
  return u;
}

// Whether a thread with a stack of its own is in the very frame that it was born in; libraries pop
// a few words there before their first call.
bool Ledger::is_of_birth(const Birth& birth, const elf::UnwindRegisters& frame) const {
  constexpr uint64_t kPoppedBytesMax = 64;
  if (!frame.known[elf::kDwarfRsp] ||
      frame.value[elf::kDwarfRsp] - birth.stack_pointer > kPoppedBytesMax) {
    return false;
  }
  const Unit& unit = cache_.unit(birth.at.unit);
  const TargetAddr before(frame.value[elf::kDwarfPc] - 1);  // a call may be the last instruction
  return unit.procedure.range.contains(unit.module->to_link(before));
}

elf::BackTrace Ledger::back_trace(const elf::UnwindRegisters& registers, uint32_t slot) const {
  return back_trace_to(bottom_of(slot), registers, slot);
}

// Of a thread that was born on a stack of its own; nullptr of any other.
const Ledger::Birth* Ledger::birth_of_stack(uint32_t slot) const {
  const auto birth = births_.find(slot);
  return birth == births_.end() || birth->second.inherits_frames ? nullptr : &birth->second;
}

UndescribedFrames Ledger::undescribed_frames(uint32_t slot) const {
  const Birth* birth = birth_of_stack(slot);
  return UndescribedFrames(
      modules_, cache_, process_,
      [this](TargetAddr address) {
        return cache_.call_block_of(address).valid() || is_inherited(address);
      },
      birth != nullptr ? std::optional(birth->stack_pointer) : std::nullopt, main_stack_,
      [this, slot](uint64_t stack_pointer) { return handler_return(slot, stack_pointer); });
}

elf::BackTrace Ledger::back_trace_to(std::optional<uint64_t> bottom,
                                     const elf::UnwindRegisters& registers, uint32_t slot) const {
  elf::UnwindTarget target = unwind_target(modules_, process_);
  target.signal_context = [this, slot](TargetAddr pc, uint64_t stack_pointer) {
    return signal_context(slot, pc, stack_pointer);
  };
  const Birth* birth = birth_of_stack(slot);
  if (birth != nullptr || bottom) {
    target.is_outermost = [&, birth, bottom](const elf::UnwindRegisters& frame) {
      return (birth != nullptr && is_of_birth(*birth, frame)) ||
             (bottom && is_below(*bottom, frame));
    };
  }
  const UndescribedFrames undescribed = undescribed_frames(slot);
  target.caller_of = [&](const elf::UnwindRegisters& frame, bool pc_is_exact, TargetAddr inner) {
    if (!pc_is_exact && is_planted(TargetAddr(frame.value[elf::kDwarfPc]))) {
      elf::UnwindRegisters nobody;
      nobody.known[elf::kDwarfPc] = nobody.known[elf::kDwarfRsp] = true;
      nobody.value[elf::kDwarfRsp] = frame.value[elf::kDwarfRsp] + 8;
      return std::optional(nobody);
    }
    return undescribed.caller_of(frame, pc_is_exact, inner);
  };
  target.below_outermost = [&](const elf::UnwindRegisters& frame) {
    return undescribed.below_outermost(frame);
  };
  return elf::unwind(registers, target, kFramesMax);
}

// The beginning of a procedure, put on a stack for its first procedure to return to: nobody called
// anything there.
bool Ledger::is_planted(TargetAddr return_address) const {
  const Module* module = modules_.containing(return_address);
  if (module == nullptr || cache_.call_block_of(return_address).valid()) return false;
  const auto range = module->image->unwind_range_at(module->to_link(return_address));
  return range && range->begin == module->to_link(return_address);
}

void Ledger::issue(const std::string& scope, const std::string& message, uint64_t amount) {
  if (recording_ != nullptr) {
    recording_->push_back([=](Ledger& l) { l.take_back_issue(scope, message, amount); });
  }
  keep_issue(scope, message, static_cast<int64_t>(amount));
  for (profile::Issue& known : issues_) {
    if (known.scope == scope && known.message == message) {
      known.amount += amount;
      return;
    }
  }
  issues_.push_back({scope, message, amount});
}

// The flow of a block whose call is not expected back has left by an edge of its own.
bool Ledger::ends_by_itself(BlockRef ref) const {
  const cfg::Procedure& p = cache_.unit(ref.unit).procedure;
  for (const cfg::Edge& edge : p.edges_of(p.blocks[ref.block])) {
    if (edge.kind == cfg::EdgeKind::kNoReturn) return true;
  }
  return false;
}

void Ledger::leave(BlockRef ref, AbnormalKind kind, const std::string& detail) {
  if (ends_by_itself(ref)) return;
  const uint32_t end = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  book_term({ref.unit, ref.block, kind, end}, 0, 1, detail);
}

void Ledger::leave_at(const Position& position, AbnormalKind kind, const std::string& detail) {
  const BlockRef ref = position.ref;
  const uint32_t count = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  if (!position.block_counted) book_uncounted(ref);
  if (position.counted_edge) book_overcounted(ref.unit, *position.counted_edge);
  if (position.in_loop) book_in_loop(*position.in_loop, position.in_loop->value);
  if (position.done >= count) return leave(ref, kind, detail);
  book_unexecuted(ref, position.done, count);
  book_term({ref.unit, ref.block, kind, position.done}, 0, 1, detail);
}

void Ledger::leave_changed(uint32_t slot, const CodeCache::CheckPoint& point, BlockRef to) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  Position position;
  position.ref = {point.ref.unit, point.ref.block};
  position.done = point.ref.insn;
  position.block_counted = point.counted;
  leave_at(position, AbnormalKind::kOther, "its code had been changed");
  if (!to.valid()) return;
  moves_[{point.ref, to}] += 1;
  keep_move(point.ref, to);
}

void Ledger::leave_to_kernel(uint32_t slot, BlockRef ref) {
  booker_ = slot;
  leave(ref, AbnormalKind::kOther, "jumps into the vsyscall page");
}

void Ledger::leave_behind_call(uint32_t slot, BlockRef ref, BlockRef to) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  leave(ref, AbnormalKind::kOther, "its code was changed by this system call");
  const uint32_t count = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  if (!to.valid() || ends_by_itself(ref)) return;
  moves_[{{ref.unit, ref.block, count}, to}] += 1;
  keep_move({ref.unit, ref.block, count}, to);
}

void Ledger::enter(uint32_t slot, BlockRef ref, AbnormalKind kind, const std::string& detail) {
  booker_ = slot;
  enter_block(ref, kind, detail);
  keep_where(slot, ref);
}

void Ledger::enter_block(BlockRef ref, AbnormalKind kind, const std::string& detail) {
  book_term({ref.unit, ref.block, kind, ref.insn}, 1, 0, detail);
}

bool Ledger::is_complete(const elf::BackTrace& trace) const {
  if (trace.end == elf::TraceEnd::kOutermost) return true;
  const size_t frames = trace.frames.size();
  for (const TargetRange& range : bottoms_) {
    if (frames > 0 && range.contains(trace.frames[frames - 1].pc)) return true;
    // One word too far, taken for a return address.
    const bool beyond = frames > 1 && range.contains(trace.frames[frames - 2].pc);
    if (beyond && modules_.at(trace.frames[frames - 1].pc) == nullptr) return true;
  }
  return false;
}

// Each frame from `first` on has an open call: its pc is the address behind it.
void Ledger::close_frames(const elf::BackTrace& trace, uint32_t slot, size_t first,
                          AbnormalKind kind, const std::string& detail) {
  for (size_t i = first; i < trace.frames.size(); ++i) close_frame(trace, slot, i, kind, detail);
  if (!is_complete(trace)) {
    issue("back-trace",
          fmt::format("the stack could not be followed to its end ({}); procedures farther out may "
                      "be off by one",
                      trace.detail));
  }
}

void Ledger::close_frame(const elf::BackTrace& trace, uint32_t slot, size_t index,
                         AbnormalKind kind, const std::string& detail) {
  const elf::Frame& frame = trace.frames[index];
  if (frame.signal_frame) return;     // where a handler returns to: not entered yet
  if (frame.pc.value() == 0) return;  // settled when its thread ended
  if (index > 0 && trace.frames[index - 1].signal_frame) {
    return close_interruption(slot, trace.frames[index - 1].context, frame.pc, kind, detail);
  }
  const BlockRef call = cache_.call_block_of(frame.pc);
  if (call.valid()) return leave(call, kind, detail);
  if (was_inherited(frame.pc, slot)) return;
  // A planted return address at the very bottom (makecontext): nobody was called there.
  if (index + 1 == trace.frames.size() && is_complete(trace)) return;
  // Or planted by a runtime system in code of its own, whose calls all have a second way out.
  const Module* module = modules_.containing(frame.pc - 1);
  if (module != nullptr && !module->image->unwind_range_at(module->to_link(frame.pc - 1))) return;
  issue("back-trace", fmt::format("a frame at {:#x} is no call that Tally saw; the counts of "
                                  "its procedure may be off by one",
                                  frame.pc.value()));
}

void Ledger::close_thread(const user_regs_struct& regs, uint32_t slot, AbnormalKind kind,
                          const std::string& detail) {
  booker_ = slot;
  if (const Interruption* back = on_way_back(regs, slot)) {
    explain_end(regs, slot, back->position);
    return close_thread_at(back->position, back->registers, slot, kind, detail);
  }
  Position position = locate(regs, slot);
  explain_end(regs, slot, position);
  if (const Entering* entering = at_handler(position, regs, slot)) {
    if (!entering->is_booked) {
      return close_thread_at(entering->position, entering->registers, slot, kind, detail);
    }
    position = at_start_of(entering->handler);
  }
  if (position.kind == Position::Kind::kUnknown) {
    issue("thread", fmt::format("a thread ended at {:#x}, which is no known place of the code "
                                "cache; the counts of its active procedures may be off by one",
                                regs.rip));
    return;
  }
  close_thread_at(position, waiting_registers(regs, slot), slot, kind, detail);
}

// TALLY_DEBUG: where a thread ends, and for what place in the program that is taken.
void Ledger::explain_end(const user_regs_struct& regs, uint32_t slot,
                         const Position& position) const {
  if (std::getenv("TALLY_DEBUG") == nullptr) return;
  const CacheAddr at(regs.rip);
  const Area* area = region_.area_at(at);
  const std::string cache = area == nullptr
                                ? "no code cache"
                                : fmt::format("{:#x} bytes into code cache {}", at - area->base,
                                              area - &region_.areas().front());
  const std::string text = fmt::format(
      "tally: debug: process {} slot {} ends at {:#x} ({}), having asked {} last: taken for {}\n",
      process_.pid(), slot, regs.rip, cache,
      static_cast<uint32_t>(tcb_u64(slot, translate::tcb::kRequest)), name_of(position));
  std::fputs(text.c_str(), stderr);
}

// A thread that waits for an answer, or has got it a moment ago, has put the program's registers
// down: what it waits with are others, and call frame information may ask for any.
user_regs_struct Ledger::waiting_registers(const user_regs_struct& regs, uint32_t slot) const {
  using translate::MailboxState;
  const auto state =
      static_cast<MailboxState>(static_cast<uint32_t>(tcb_u64(slot, translate::tcb::kState)));
  const translate::GatewayCode& gateway = region_.areas().front().gateway;
  const CacheAddr at(regs.rip);
  const auto request = static_cast<translate::Request>(
      static_cast<uint32_t>(tcb_u64(slot, translate::tcb::kRequest)));
  const bool answered = at >= gateway.saved && at < gateway.entries.link &&
                        request != translate::Request::kSyscall &&
                        request != translate::Request::kSyscallDone;
  if (state != MailboxState::kPosted && state != MailboxState::kAsleep && !answered) return regs;
  return registers_put_down(region_.thread_memory(slot), regs);
}

void Ledger::close_thread_at(const Position& position, const user_regs_struct& regs, uint32_t slot,
                             AbnormalKind kind, const std::string& detail) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  if (is_unborn(position, regs, slot)) {
    const bool alone = !births_[slot].inherits_frames;
    take_birth_back(slot);
    if (alone) return interruptions_.forget(slot);
  } else if (position.kind == Position::Kind::kInBlock) {
    leave_at(position, kind, detail);
  }
  const std::optional<Start> start = start_at(position, regs);
  if (!start) {
    issue("back-trace", "the stack of a dying thread could not be read");
    return;
  }
  if (position.pc_is_on_stack) {
    if (const BlockRef call = cache_.call_block_of(start->pc); call.valid()) book_unarrived(call);
  }
  const OpenFrames open = open_frames(position, *start, slot);
  close_frames(open.trace, slot, open.first, kind, detail);
  interruptions_.forget(slot);
  keep_interruptions(slot);
}

// The procedures that wait for a callee of a thread that stands there.
Ledger::OpenFrames Ledger::open_frames(const Position& position, const Start& start,
                                       uint32_t slot) const {
  if (const elf::BackTrace* open = open_after_jump(position, slot)) return {*open, 0};
  if (const elf::BackTrace* entered = stack_when_entered(position, slot)) return {*entered, 1};
  return frames_from(start, slot);
}

Ledger::OpenFrames Ledger::frames_from(const Start& start, uint32_t slot) const {
  elf::BackTrace trace = back_trace(start.registers, slot);
  if (!start.at_return_address) return {std::move(trace), 1};
  // Behind a call or return the first frame is a caller whose call is still open.
  if (!trace.frames.empty()) trace.frames.front().pc = start.pc;
  return {std::move(trace), 0};
}

// Nothing if the stack cannot be read.
std::optional<Ledger::Start> Ledger::start_at(const Position& position,
                                              const user_regs_struct& regs) const {
  Start start;
  start.registers = unwind_registers(regs);
  start.registers.value[elf::kDwarfRsp] += position.stack_bytes;
  start.pc = position.pc;
  start.at_return_address = position.pc_is_return_address || position.pc_is_on_stack;
  if (position.pc_is_on_stack) {
    uint64_t pushed = 0;
    if (!process_.read_memory(TargetAddr(regs.rsp), &pushed, sizeof pushed)) return std::nullopt;
    start.pc = TargetAddr(pushed);
    start.registers.value[elf::kDwarfRsp] += sizeof pushed;
  }
  // The byte in front of a return address belongs to the call, which is open unless its return has
  // happened; behind it another procedure may begin.
  const bool to_restorer = interruptions_.is_restorer(start.pc);
  const bool has_returned = position.pc_is_return_address && position.stack_bytes == 0;
  const TargetAddr behind = has_returned ? described_by(start.pc) : start.pc - 1;
  const bool before = start.at_return_address && !to_restorer;
  start.registers.value[elf::kDwarfPc] = (before ? behind : start.pc).value();
  return start;
}

// The jump out of the stack whose last instruction a thread is about to execute.
const Ledger::Jump* Ledger::jump_under_way(const Position& position, uint32_t slot) const {
  const auto it = jumps_.find(slot);
  if (it == jumps_.end() || position.kind != Position::Kind::kInBlock) return nullptr;
  const BlockRef ref = position.ref;
  const uint32_t count = cache_.unit(ref.unit).procedure.blocks[ref.block].insn_count;
  const bool at_end = it->second.unit == ref.unit && position.done + 1 >= count;
  return at_end && ends_in_jump(ref) ? &it->second : nullptr;
}

// A jump that is committed to.
bool Ledger::ends_in_jump(BlockRef ref) const {
  const auto& planned = cache_.unit(ref.unit).plan.events;
  return std::ranges::any_of(planned, [&](const translate::Plan::Event& one) {
    const EventState& event = cache_.event(one.event);
    const bool jumps = event.kind == EventKind::kCommit || event.kind == EventKind::kJumpByReturn;
    return event.block == ref.block && jumps;
  });
}

const elf::BackTrace* Ledger::open_after_jump(const Position& position, uint32_t slot) const {
  const Jump* jump = jump_under_way(position, slot);
  return jump != nullptr ? &jump->open : nullptr;
}

// The stack of a thread inside a procedure that is about to jump out of it, but has not yet said so
// (`commit`).  Registers of where it goes may be there already, and glibc's call frame information
// speaks of nothing else; so the snapshot from when the procedure was entered is all there is to go
// by.  It is of this activation where nothing of the procedure can have called it again since.
const elf::BackTrace* Ledger::stack_when_entered(const Position& position, uint32_t slot) const {
  if (position.kind != Position::Kind::kInBlock) return nullptr;
  const BlockRef ref = position.ref;
  const auto snapshot = snapshots_.find({slot, ref.unit});
  if (snapshot == snapshots_.end() || jump_under_way(position, slot) != nullptr) return nullptr;
  const Unit& unit = cache_.unit(ref.unit);
  bool is_of_entry = false;
  bool is_taken = true;  // rather than being about to be
  for (const translate::Plan::Event& planned : unit.plan.events) {
    const EventState& event = cache_.event(planned.event);
    if (event.kind != EventKind::kSnapshot) continue;
    is_of_entry |= event.block == unit.procedure.entry_block;
    is_taken &= event.block != ref.block || position.done > event.insn;
  }
  const bool calls = std::ranges::any_of(unit.procedure.blocks, [](const cfg::Block& block) {
    return block.end == isa::Flow::kCall || block.end == isa::Flow::kIndirectCall;
  });
  const bool is_known = ends_in_jump(ref) || (is_of_entry && !calls);
  return is_taken && is_known ? &snapshot->second : nullptr;
}

// Flow enters a block whose instructions are not executed: it only leaves it.
void Ledger::enter_unexecuted(BlockRef ref, AbnormalKind kind, const char* detail) {
  const Unit& unit = cache_.unit(ref.unit);
  const uint32_t count = unit.procedure.blocks[ref.block].insn_count;
  enter_block({ref.unit, ref.block, count}, kind, detail);
  book_unexecuted(ref, 0, count);
  if (unit.plan.block_counter[ref.block] != translate::kNoCounter) book_uncounted(ref);
}

// A thread is born behind a `syscall`: its flow appears in the block there.  It still runs through
// the edge's counter, if there is one, which is therefore one too high.
void Ledger::begin_behind(BlockRef ref) {
  const Unit& unit = cache_.unit(ref.unit);
  const cfg::Block& block = unit.procedure.blocks[ref.block];
  const cfg::Edge& edge = unit.procedure.edges[block.first_edge];
  if (edge.kind != cfg::EdgeKind::kSystemCall) {
    enter_unexecuted(ref, AbnormalKind::kThreadStart, "a thread was born here");
    return;
  }
  enter_block({ref.unit, edge.to, 0}, AbnormalKind::kThreadStart, "a thread was born here");
  if (unit.plan.edge_counter[block.first_edge] != translate::kNoCounter) {
    book_overcounted(ref.unit, block.first_edge);
  }
}

// The thread ends where it was born, before it has executed anything.
bool Ledger::is_unborn(const Position& position, const user_regs_struct& regs,
                       uint32_t slot) const {
  const auto it = births_.find(slot);
  if (it == births_.end() || position.kind != Position::Kind::kInBlock) return false;
  const Birth& birth = it->second;
  const cfg::Procedure& p = cache_.unit(birth.at.unit).procedure;
  const cfg::Block& block = p.blocks[birth.at.block];
  return position.ref.unit == birth.at.unit && position.ref.block == birth.at.block &&
         position.done == block.insn_count && regs.rsp == birth.stack_pointer &&
         p.edges[block.first_edge].kind == cfg::EdgeKind::kSystemCall;
}

void Ledger::take_birth_back(uint32_t slot) {
  const BlockRef at = births_[slot].at;
  births_.erase(slot);
  const Unit& unit = cache_.unit(at.unit);
  const uint32_t edge = unit.procedure.blocks[at.block].first_edge;
  unbook_entered({at.unit, unit.procedure.edges[edge].to, AbnormalKind::kThreadStart, 0});
  if (unit.plan.edge_counter[edge] != translate::kNoCounter) unbook_overcounted(at.unit, edge);
}

void Ledger::open_thread(const user_regs_struct& regs, uint32_t slot, bool inherits_frames,
                         uint32_t parent_slot) {
  booker_ = slot;
  const KeptBusy busy(kept_);
  const Position position = locate(regs, slot);
  if (position.kind != Position::Kind::kInBlock) {
    issue("thread", fmt::format("a thread began at {:#x}, which is no known place", regs.rip));
    return;
  }
  begin_behind(position.ref);
  births_[slot] = {position.ref, regs.rsp, inherits_frames};
  keep_where(slot, position.ref);
  if (!inherits_frames) return;
  elf::UnwindRegisters registers = unwind_registers(regs);
  registers.value[elf::kDwarfPc] = position.pc.value();
  interruptions_.inherit(slot, parent_slot);
  keep_interruptions(slot);
  const elf::BackTrace trace = back_trace(registers, slot);
  for (size_t i = 1; i < trace.frames.size(); ++i) {
    if (trace.frames[i].signal_frame) continue;
    if (trace.frames[i - 1].signal_frame) {
      open_interruption(slot, trace.frames[i - 1].context);
      continue;
    }
    const BlockRef call = cache_.call_block_of(trace.frames[i].pc);
    if (call.valid()) {
      enter_unexecuted(call, AbnormalKind::kThreadStart, "a vfork child shares this frame");
    } else if (is_inherited(trace.frames[i].pc)) {
      ++inherited_[{trace.frames[i].pc.value(), slot}];
    }
  }
}

}  // namespace tally::engine
