// Taking over a process in mid-run.  See image_run.h.
//
// A fork child is a copy of its parent, but for the region, which both have mapped.  The child gets
// a region of its own at the same addresses before it executes anything; its code cache begins
// empty, since its stack and registers hold original addresses only.  What was open in the parent
// is open in the child too (Ledger::begin_in_mid_run).
#include <fmt/format.h>
#include <sys/syscall.h>

#include "engine/describe.h"
#include "engine/image_run.h"
#include "engine/signal_pause.h"

namespace tally::engine {

Status ImageRun::adopt(ImageRun& parent, pid_t maker) {
  const PhaseTimer timer(phases_, Phase::kBegin);
  const pid_t pid = process_->pid();
  user_regs_struct regs{};
  if (!process_->try_registers(pid, regs)) return make_error("process {} is gone", pid);
  auto thread = parent.threads_.find(maker);
  const bool known = thread != parent.threads_.end() && thread->second.slot;
  const uint32_t parent_slot = known ? *thread->second.slot : 0;
  // Who has called whom is asked below.
  if (known) parent.cache_.take_notes(parent_slot, CodeCache::AfterVisits::kGoesOn);
  const Position position = parent.ledger_.locate(regs, parent_slot);
  if (position.kind != Position::Kind::kInBlock) {
    return make_error("process {} was forked at {:#x}, which is no known place", pid, regs.rip);
  }
  const Unit& unit = parent.cache_.unit(position.ref.unit);
  const TargetAddr pc = unit.module->to_target(unit.end_of(position.ref.block));
  describe_process(*process_, facts_);
  syscall_insn_ = parent.syscall_insn_;
  TRY(open_kept());
  const SignalPause pause(*process_, pid);
  const RemoteCall call = remote_call();
  TRY(take_region_of(parent, call));
  modules_.inherit(parent.modules_, region_);
  service_.inherit_limit(parent.service_.limit_added_bytes());
  service_.pretend_dumpable(parent.service_.pretended_dumpable());
  cache_.set_compare(parent.cache_.compare());
  if (cache_.compare() == translate::Compare::kLow32) keep_apart();
  const bool jumps = parent.cache_.returns_form() == translate::Returns::kJump;
  cache_.set_returns(jumps ? translate::Returns::kJump : translate::Returns::kPaired,
                     ReturnsHint::kFixed);
  code_sizes_ = parent.code_sizes_;
  cache_.set_code_bytes(code_sizes_.program_bytes);
  cache_.set_weights(parent.cache_.weights());
  cache_.initialize_tables();
  enable_feedback();
  cache_.set_remote_call(call);
  TRY(begin_at(pc, regs, parent, maker, parent_slot));
  if (known) threads_[pid].rseq = parent.service_.rseq_of(parent_slot, thread->second.rseq);
  areas_by_mailbox();
  return Ok{};
}

Status ImageRun::take_region_of(const ImageRun& parent, const RemoteCall& call) {
  const PhaseTimer timer(phases_, Phase::kRegion);
  TRY(region_.create_in_place(parent.region_, *process_, call));
  return region_.close_target_descriptor(call);
}

// The only thread of the process is about to execute the instruction at `pc`.
Status ImageRun::begin_at(TargetAddr pc, user_regs_struct regs, const ImageRun& parent, pid_t maker,
                          uint32_t parent_slot) {
  const pid_t pid = process_->pid();
  const std::optional<uint32_t> slot = service_.open_slot(busy_stack(regs.rsp));
  CHECK(slot.has_value()) << "the first thread has no slot";
  threads_[pid].slot = slot;
  totals_.begin(*slot, pid, "");
  elf::UnwindRegisters unwind = unwind_registers(regs);
  unwind.value[elf::kDwarfPc] = pc.value();
  TRY_ASSIGN(const BlockRef at, cache_.resolve(pc, Arrival::kJump));
  if (!at.valid()) return make_error("process {} would go on at {:#x}, no code", pid, pc.value());
  CHECK(at.insn == 0) << "no block begins where a process was forked";
  // A child with a stack of its own (clone) may yet jump to the one it has a copy of.
  elf::UnwindRegisters left{};
  user_regs_struct makers{};
  const bool own_stack =
      process_->try_registers(maker, makers) && makers.rsp != regs.rsp && makers.rsp != 0;
  if (own_stack) {
    left = unwind_registers(makers);
    left.value[elf::kDwarfPc] = pc.value();
  }
  ledger_.begin_in_mid_run(unwind, *slot, at, parent.ledger_, parent_slot,
                           own_stack ? &left : nullptr, "forked here");
  regs.rip = cache_.way_into(at).value();
  regs.rcx = pc.value();
  regs.gs_base = region_.thread_block(*slot).value();
  // What is on the ledger by now would be wrong.
  if (!process_->set_registers(pid, regs)) return make_error("process {} was killed", pid);
  return Ok{};
}

}  // namespace tally::engine
