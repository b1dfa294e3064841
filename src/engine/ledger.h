// The ledger of abnormal flow: where flow appears or vanishes out of turn.
//
// Problem.  Counts follow from conservation of flow only if every procedure that is entered is also
// left.  A program that exits in the middle of a call chain, throws, or longjmps leaves procedures
// that never returned.
//
// Idea (Ball and Larus, section 3.1, Figure 4).  At each such event take a back-trace; every active
// procedure gets one term at the block whose call is still open:
//
//   main: ... call f       left 1        The flow that entered main, f and g, and stopped in the
//   f:    ... call g       left 1        middle of g's block, is on the books; every block
//   balances. g:    mov; mov | ...   left 1, and its last instructions count one less
//
// A thread's birth is the same with the sign changed: flow appears behind the `syscall`.
//
// A back-trace that does not reach the outermost frame, or a frame that is no call of ours, makes
// an issue: the report then says which procedure may be off by one.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "elf/unwind.h"
#include "engine/code_cache.h"
#include "engine/interruptions.h"
#include "profile/model.h"
#include "tracee/process.h"

namespace tally::engine {

struct LedgerTerm {
  uint64_t entered = 0;
  uint64_t left = 0;
  std::string detail;
};

class Ledger {
 public:
  Ledger(CodeCache& cache, ModuleMap& modules, Region& region, tracee::Process& process)
      : cache_(cache), modules_(modules), region_(region), process_(process) {}

  Position locate(const user_regs_struct& regs, uint32_t slot);
  // The original address the thread's last indirect branch or return went to.
  uint64_t requested_target(uint32_t slot) const;

  // Closes every frame of a thread that ends at `regs`.
  void close_thread(const user_regs_struct& regs, uint32_t slot, profile::AbnormalKind kind,
                    const std::string& detail);
  // A thread begins behind the `syscall` at `regs`; with `inherits_frames` (vfork) all frames of
  // its parent are open in it too.
  void open_thread(const user_regs_struct& regs, uint32_t slot, bool inherits_frames,
                   uint32_t parent_slot);
  // A process begins in mid-run at the start of block `at` (after fork): its stack is the
  // parent's, with all frames open.  Their code is not translated for that: a frame that control
  // never comes back to cancels out; the others are entered by `settle_inherited` at the end.
  void begin_in_mid_run(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef at,
                        const Ledger& parent, uint32_t parent_slot, const std::string& detail);
  void settle_inherited();
  // Code at the very bottom of a stack; a back-trace that ends there is complete even if no call
  // frame information says so.
  void bottom(TargetRange range) { bottoms_.push_back(range); }
  // Flow enters a block from nowhere (program start).
  void enter(BlockRef ref, profile::AbnormalKind kind, const std::string& detail);

  // A signal's handler begins: the thread is suspended where `interruption` says.
  void handler_entered(uint32_t slot, const Interruption& interruption, BlockRef handler,
                       TargetAddr restorer);
  // Where in the code cache a handler's return to `pc` goes on with what it interrupted; 0 if
  // control goes elsewhere.
  CacheAddr way_back(uint32_t slot, uint64_t context, TargetAddr pc);
  // A handler returns by the `rt_sigreturn` that ends block `call`.  Unless it goes `back`, the
  // interrupted block is left, and all frames below the new stack pointer.
  void handler_left(uint32_t slot, BlockRef call, uint64_t context, bool back,
                    uint64_t stack_pointer);
  // The thread of a slot is gone.
  void forget(uint32_t slot) { interruptions_.forget(slot); }

  // The rest of a block was not run: its code has changed, and the thread goes on in another unit.
  void leave_changed(const CodeCache::CheckPoint& point, BlockRef to);
  // A thread goes on behind a system call in another unit than it made the call in.
  void leave_behind_call(BlockRef ref, BlockRef to);

  // longjmp and exceptions: the stack as it is now, and the jump out of it.
  // Both come from probes of one procedure, `unit`: only its own snapshot says where it was called.
  void snapshot(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& registers);
  // `by_return`: control goes there by a return.
  void commit(uint32_t slot, uint32_t unit, uint64_t stack_pointer, TargetAddr destination,
              bool by_return);

  elf::BackTrace back_trace(const elf::UnwindRegisters& registers, uint32_t slot) const;

  void issue(const std::string& scope, const std::string& message, uint64_t amount = 1);

  // The State below is all that has been booked: for taking back what was booked ahead of an event
  // that then failed.
  // Unit, block, kind, and the block's instruction at which flow appears or in front of which it
  // vanishes (their number: at the end).
  using TermKey = std::tuple<uint32_t, uint32_t, profile::AbnormalKind, uint32_t>;
  const std::map<TermKey, LedgerTerm>& terms() const { return terms_; }
  using PartialKey =
      std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;  // unit, block, first, last
  struct State {
    std::map<TermKey, LedgerTerm> terms;
    std::map<PartialKey, int64_t> partials;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> uncounted;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> unarrived;
    std::vector<profile::Issue> issues;
    Interruptions interruptions;
    std::map<uint64_t, uint64_t> inherited;
  };
  State state() const {
    return {terms_, partials_, uncounted_, unarrived_, issues_, interruptions_, inherited_};
  }
  void restore(State state) {
    terms_ = std::move(state.terms);
    partials_ = std::move(state.partials);
    uncounted_ = std::move(state.uncounted);
    unarrived_ = std::move(state.unarrived);
    issues_ = std::move(state.issues);
    interruptions_ = std::move(state.interruptions);
    inherited_ = std::move(state.inherited);
  }
  const std::map<PartialKey, int64_t>& partials() const { return partials_; }
  // Flow that went over from a block of changed code to the unit that replaced it, by (block with
  // the instruction that was next, where it went on).
  using MoveKey = std::pair<BlockRef, BlockRef>;
  const std::map<MoveKey, uint64_t>& moves() const { return moves_; }
  // Blocks that were entered, but whose counter did not run: by (unit, block).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& uncounted() const { return uncounted_; }
  // Edges whose counter ran more often than control took the edge: by (unit, edge).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& overcounted() const {
    return overcounted_;
  }
  // Direct calls whose thread died before the callee began: by (unit, block).
  const std::map<std::pair<uint32_t, uint32_t>, uint64_t>& unarrived() const { return unarrived_; }
  const std::vector<profile::Issue>& issues() const { return issues_; }

 private:
  Position locate_in_unit(const Unit& unit, uint32_t offset, const user_regs_struct& regs,
                          uint32_t slot);
  Position locate_in_block(const Unit& unit, uint32_t block, uint32_t offset,
                           const user_regs_struct& regs, uint32_t slot);
  Position locate_in_gateway(uint32_t slot);
  Position locate_in_lookup(const Area& area, const user_regs_struct& regs, uint32_t slot);
  Position behind_popped_return(const user_regs_struct& regs);
  Position in_front_of_return(const user_regs_struct& regs);
  Position locate_in_thunk(const Unit& unit, uint32_t offset);
  Position at_start_of(BlockRef ref);
  Position at_end_of(BlockRef ref);
  Position at_check(uint32_t check);
  Position behind_call();
  Position behind_return(TargetAddr target);
  uint64_t tcb_u64(uint32_t slot, uint32_t offset) const;
  TargetAddr insn_address(BlockRef ref, uint32_t index) const;
  bool ends_by_itself(BlockRef ref) const;
  void leave(BlockRef ref, profile::AbnormalKind kind, const std::string& detail);
  // A block is left where `position` says, `done` instructions into it.
  void leave_at(const Position& position, profile::AbnormalKind kind, const std::string& detail);
  void close_frames(const elf::BackTrace& trace, uint32_t slot, size_t first,
                    profile::AbnormalKind kind, const std::string& detail);
  void close_frame(const elf::BackTrace& trace, uint32_t slot, size_t index,
                   profile::AbnormalKind kind, const std::string& detail);
  void close_interruption(uint32_t slot, uint64_t context, TargetAddr pc,
                          profile::AbnormalKind kind, const std::string& detail);
  void open_interruption(uint32_t slot, uint64_t context);
  void abandon_to(uint32_t slot, const Interruption& record, uint64_t stack_pointer);
  elf::SignalContext interrupted_state(const Interruption& record) const;
  std::optional<elf::SignalContext> signal_context(uint32_t slot, TargetAddr pc,
                                                   uint64_t context) const;

  CodeCache& cache_;
  ModuleMap& modules_;
  Region& region_;
  tracee::Process& process_;
  void enter_unexecuted(BlockRef ref, profile::AbnormalKind kind, const char* detail);
  void land_behind_call(TargetAddr destination);
  void begin_behind(BlockRef ref);
  bool is_complete(const elf::BackTrace& trace) const;
  bool was_inherited(TargetAddr return_address);

  Interruptions interruptions_;
  std::vector<TargetRange> bottoms_;
  std::map<uint64_t, uint64_t> inherited_;  // by return address: frames open since before our time
  std::map<TermKey, LedgerTerm> terms_;
  std::map<PartialKey, int64_t> partials_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> uncounted_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> overcounted_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> unarrived_;
  std::map<MoveKey, uint64_t> moves_;
  std::vector<profile::Issue> issues_;
  std::map<std::pair<uint32_t, uint32_t>, elf::BackTrace> snapshots_;  // by slot and unit
};

// The frame that is active when the stack pointer has this value: all inner ones are abandoned.
std::optional<size_t> frame_holding(const elf::BackTrace& trace, uint64_t stack_pointer);

// DWARF-numbered registers from the kernel's.
elf::UnwindRegisters unwind_registers(const user_regs_struct& regs);

}  // namespace tally::engine
