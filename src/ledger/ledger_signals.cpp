// The ledger's part in signals: what is booked when a handler begins, returns, or never does.
//
// A handler that returns to where its signal struck books nothing for the interrupted block: its
// flow was suspended and goes on.  Everything else leaves that block where it stood.
#include <fmt/format.h>

#include "ledger/kept_run.h"
#include "ledger/ledger.h"

namespace tally::engine {

using profile::AbnormalKind;

namespace {
constexpr const char* kElsewhere = "its signal handler went on elsewhere";
}  // namespace

void Ledger::handler_entered(uint32_t slot, const Interruption& interruption, BlockRef handler,
                             TargetAddr restorer) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  interruptions_.note_restorer(restorer);
  if (interruptions_.push(slot, interruption)) {
    issue("signals",
          "a signal handler was left in a way Tally did not see; the block it interrupted and the "
          "procedures active in it may be off by one");
  }
  keep_interruptions(slot);
  if (const auto it = entering_.find(slot); it != entering_.end()) {
    it->second.handler = handler;
    it->second.is_booked = true;
  }
  if (handler.valid()) {
    enter_block(handler, AbnormalKind::kSignalHandler, profile::kHandlerBegins);
    keep_where(slot, handler);
  }
}

CacheAddr Ledger::way_back(uint32_t slot, uint64_t context, TargetAddr pc) {
  const Interruption* record = interruptions_.find(slot, context);
  if (record == nullptr) return CacheAddr();
  const Position& position = record->position;
  const bool ours = position.kind == Position::Kind::kInBlock && !record->inherited;
  if (ours && cache_.discard_if_changed(position.ref.unit)) {
    return CacheAddr();  // the handler has replaced the very code
  }
  const TargetAddr interrupted(record->registers.rip);
  if (pc == interrupted) return record->resume;
  if (pc + isa::kSyscallBytes == interrupted) return record->restart;  // behind a `syscall`
  return CacheAddr();
}

void Ledger::handler_left(uint32_t slot, BlockRef call, uint64_t context, bool back,
                          uint64_t stack_pointer) {
  const KeptBusy busy(kept_);
  booker_ = slot;
  leave(call, AbnormalKind::kSignalHandler, "a signal handler returns");
  std::optional<Interruption> record = interruptions_.take(slot, context);
  keep_interruptions(slot);
  if (!record) {
    issue("signals",
          "the program returned through a signal frame that Tally did not see being built; the "
          "procedures it left may be off by one");
    return;
  }
  if (back) {
    if (record->position.kind == Position::Kind::kInBlock) keep_where(slot, record->position.ref);
    if (record->position.in_loop) go_on_in_loop(*record->position.in_loop, context);
    if (!record->inherited) returning_.insert_or_assign(slot, *record);
    return;
  }
  if (record->position.kind == Position::Kind::kInBlock && !record->inherited) {
    leave_at(record->position, AbnormalKind::kSignalHandler, kElsewhere);
  }
  if (may_abandon(*record, stack_pointer)) abandon_to(slot, *record, stack_pointer);
}

// The handler may have changed the register that counts the loop: what was done so far counts by
// the one that it had, what is to come by the other.
void Ledger::go_on_in_loop(Position::InLoop& loop, uint64_t context) {
  uint64_t now = 0;
  const TargetAddr at(context + kContextOf[loop.reg]);
  if (!process_.read_memory(at, &now, sizeof now)) {
    issue("signals",
          "what a handler made of a register that counts a loop could not be read; the loop's "
          "counts may be off");
    return;
  }
  book_in_loop(loop, loop.value - now);
  loop.value = now;
}

// Frames are left where the stack pointer goes up; or down to them, if it had been moved far above,
// which only a frame with a description can tell.
bool Ledger::may_abandon(const Interruption& record, uint64_t stack_pointer) const {
  if (stack_pointer >= record.registers.rsp) return stack_pointer > record.registers.rsp;
  return record.position.kind == Position::Kind::kInBlock && !record.inherited &&
         !cache_.unit(record.position.ref.unit).open_calls;
}

// The handler in front of whose first instruction the kernel has put a thread that then was killed:
// the thread never came to the handler's copy.
const Ledger::Entering* Ledger::at_handler(const Position& position, const user_regs_struct& regs,
                                           uint32_t slot) const {
  const auto it = entering_.find(slot);
  if (it == entering_.end() || position.kind != Position::Kind::kOutside) return nullptr;
  const Entering& entering = it->second;
  const bool is_there =
      entering.handler.valid() && cache_.address_of(entering.handler) == TargetAddr(regs.rip);
  return is_there || !entering.is_booked ? &entering : nullptr;
}

// The interruption that a thread gives back with the `rt_sigreturn` that it is about to make: its
// handler has been left on the books, and its frame says what the kernel is to know of the cache.
const Interruption* Ledger::on_way_back(const user_regs_struct& regs, uint32_t slot) const {
  using translate::MailboxState;
  const auto it = returning_.find(slot);
  const translate::GatewayCode& gateway = region_.areas().front().gateway;
  const CacheAddr at(regs.rip);
  if (it == returning_.end() || at < gateway.posted || at > gateway.syscall_insn) return nullptr;
  const auto state = static_cast<uint32_t>(tcb_u64(slot, translate::tcb::kState));
  return state == static_cast<uint32_t>(MailboxState::kAnswered) ? &it->second : nullptr;
}

// The handler has moved the stack pointer: frames that lie below it are left for good.
void Ledger::abandon_to(uint32_t slot, const Interruption& record, uint64_t stack_pointer) {
  const elf::SignalContext context = interrupted_state(record);
  elf::UnwindRegisters registers = context.registers;
  if (!context.pc_is_exact) registers.value[elf::kDwarfPc] -= 1;
  elf::BackTrace trace = back_trace(registers, slot);
  if (trace.frames.empty()) return;
  if (!context.pc_is_exact) {
    // A call to nowhere: its caller goes on behind it, as if the call had come back.
    trace.frames.front().pc = TargetAddr(context.registers.value[elf::kDwarfPc]);
    close_frame(trace, slot, 0, AbnormalKind::kSignalHandler, kElsewhere);
  }
  if (stack_pointer < trace.frames.front().cfa.value()) return;
  const std::optional<size_t> target = frame_holding(trace, stack_pointer);
  if (!target) {
    name_switched_stacks(
        "a signal handler switches stacks; procedures that are left waiting on a stack nobody "
        "returns to are off by one");
    return;
  }
  for (size_t i = 1; i <= *target && i < trace.frames.size(); ++i) {
    close_frame(trace, slot, i, AbnormalKind::kSignalHandler, kElsewhere);
  }
}

// Where unwinding goes on below a signal's frame.
elf::SignalContext Ledger::interrupted_state(const Interruption& record) const {
  elf::SignalContext context;
  context.registers = unwind_registers(record.registers);
  if (record.position.pc_is_on_stack) {
    uint64_t pushed = 0;
    const TargetAddr at(record.registers.rsp);
    if (process_.read_memory(at, &pushed, sizeof pushed)) {
      context.registers.value[elf::kDwarfPc] = pushed;
      context.registers.value[elf::kDwarfRsp] += 8;
      context.pc_is_exact = false;
    }
  } else if (record.position.kind == Position::Kind::kInBlock) {
    context.registers.value[elf::kDwarfPc] = record.position.pc.value();
  }
  return context;
}

// The kernel's frame begins with the address that the handler returns to; the context is behind it.
std::optional<uint64_t> Ledger::handler_return(uint32_t slot, uint64_t stack_pointer) const {
  constexpr uint64_t kFrameBytesMax = 16 << 20;
  const Interruption* record = interruptions_.innermost(slot, stack_pointer);
  if (record == nullptr || record->context - stack_pointer > kFrameBytesMax) return std::nullopt;
  uint64_t back = 0;
  const uint64_t at = record->context - sizeof back;
  const bool there = process_.read_memory(TargetAddr(at), &back, sizeof back) &&
                     interruptions_.is_restorer(TargetAddr(back));
  return there ? std::optional(at) : std::nullopt;
}

std::optional<elf::SignalContext> Ledger::signal_context(uint32_t slot, TargetAddr pc,
                                                         uint64_t context) const {
  if (!interruptions_.is_in_restorer(pc)) return std::nullopt;
  const Interruption* record = interruptions_.find(slot, context);
  if (record == nullptr) return std::nullopt;
  return interrupted_state(*record);
}

void Ledger::close_interruption(uint32_t slot, uint64_t context, TargetAddr pc, AbnormalKind kind,
                                const std::string& detail) {
  const std::optional<Interruption> record = interruptions_.take(slot, context);
  keep_interruptions(slot);
  if (!record) {
    issue("back-trace",
          fmt::format("what a signal interrupted at {:#x} is not known; the counts of "
                      "its procedure may be off by one",
                      pc.value()));
    return;
  }
  if (record->inherited) return;  // nor was it entered
  if (record->position.kind == Position::Kind::kInBlock) {
    leave_at(record->position, kind, detail);
  } else if (record->position.pc_is_on_stack) {
    const BlockRef call = cache_.call_block_of(pc);
    if (!call.valid()) return;
    leave(call, kind, detail);
    book_unarrived(call);
  }
}

// A vfork child is born inside a handler: it will leave the interrupted block, but not go on in it.
void Ledger::open_interruption(uint32_t slot, uint64_t context) {
  const Interruption* record = interruptions_.find(slot, context);
  if (record == nullptr || record->inherited || record->position.kind != Position::Kind::kInBlock)
    return;
  const Position& position = record->position;
  const BlockRef ref = position.ref;
  enter_block({ref.unit, ref.block, position.done}, AbnormalKind::kThreadStart,
              "a vfork child shares this frame");
  if (position.done > 0) book_unexecuted(ref, 0, position.done);
  const bool has_counter =
      cache_.unit(ref.unit).plan.block_counter[ref.block] != translate::kNoCounter;
  if (has_counter && position.block_counted) book_uncounted(ref);
  if (position.in_loop) book_in_loop(*position.in_loop, 0 - position.in_loop->value);
}

}  // namespace tally::engine
