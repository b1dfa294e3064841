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

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "cache/code_cache.h"
#include "elf/unwind.h"
#include "ledger/bookings.h"
#include "ledger/interruptions.h"
#include "ledger/ledger_books.h"
#include "ledger/left_stacks.h"
#include "profile/model.h"
#include "tracee/process.h"

namespace tally::engine {

class KeptRun;
class UndescribedFrames;

class Ledger : public LedgerBooks {
 public:
  Ledger(CodeCache& cache, ModuleMap& modules, Region& region, tracee::Process& process)
      : cache_(cache), modules_(modules), region_(region), process_(process) {}

  Position locate(const user_regs_struct& regs, uint32_t slot);
  // The original address the thread's last indirect branch or return went to.
  uint64_t requested_target(uint32_t slot) const;
  // For people: which place in the program it is, and how far a thread has come there.
  std::string name_of(const Position& position) const;

  // Closes every frame of a thread that ends at `regs`.
  void close_thread(const user_regs_struct& regs, uint32_t slot, profile::AbnormalKind kind,
                    const std::string& detail);
  // The same where the position is known already; `regs` are the thread's, but for the pc.
  void close_thread_at(const Position& position, const user_regs_struct& regs, uint32_t slot,
                       profile::AbnormalKind kind, const std::string& detail);
  // A thread begins behind the `syscall` at `regs`; with `inherits_frames` (vfork) all frames of
  // its parent are open in it too.
  void open_thread(const user_regs_struct& regs, uint32_t slot, bool inherits_frames,
                   uint32_t parent_slot);
  // A process begins in mid-run at the start of block `at` (after fork): its stack is the
  // parent's, with all frames open.  Their code is not translated for that: a frame that control
  // never comes back to cancels out; the others are entered by `settle_inherited` at the end.
  // `left`: its maker's registers, if the process was given a stack of its own.
  void begin_in_mid_run(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef at,
                        const Ledger& parent, uint32_t parent_slot,
                        const elf::UnwindRegisters* left, const std::string& detail);
  void settle_inherited();
  // Those of one thread, which has ended.
  void settle_inherited(uint32_t slot);
  // Of a thread that vanished nobody knows which of them it has left: it had none.
  void drop_inherited(uint32_t slot);
  // A thread of a process that runs already, with its own registers as it was found: its frames
  // were entered before.  `inside` is the block whose `syscall` the thread is in, if it is in one;
  // else it goes on through the arrival stub of `at`.
  void attach_thread(const elf::UnwindRegisters& registers, uint32_t slot, BlockRef inside,
                     BlockRef at);
  // Everything that is booked is written down as well.
  void keep_in(KeptRun* kept) { kept_ = kept; }
  // Code at the very bottom of a stack; a back-trace that ends there is complete even if no call
  // frame information says so.
  void bottom(TargetRange range) { bottoms_.push_back(range); }
  // Flow enters a block from nowhere (program start), in the thread of a slot.
  void enter(uint32_t slot, BlockRef ref, profile::AbnormalKind kind, const std::string& detail);

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
  // A handler is about to be entered, from there in the program; or it is not after all.
  void handler_ahead(uint32_t slot, const Position& position, const user_regs_struct& registers) {
    entering_.insert_or_assign(slot, Entering{position, registers, {}, false});
  }
  void no_handler_ahead(uint32_t slot) { entering_.erase(slot); }
  // The thread asks for something else, so it is back from there.
  void handler_is_back(uint32_t slot) { returning_.erase(slot); }
  // It goes on at `ref`, by an arrival, and not with what it interrupted.
  void handler_goes_to(BlockRef ref) { sent_by_handlers_[ref] += 1; }
  // A jump that ends block `ref` went to code that the kernel executes itself.
  void leave_to_kernel(uint32_t slot, BlockRef ref);
  // The thread of a slot is gone.
  void forget(uint32_t slot);

  // The rest of a block was not run: its code has changed, and the thread goes on in another unit.
  void leave_changed(uint32_t slot, const CodeCache::CheckPoint& point, BlockRef to);
  // How a thread comes to where it goes on.
  enum class Way : uint8_t { kReturn, kJump };
  // Who has calls open when a thread goes on at the pc of these registers (the outermost last);
  // nothing where that is not known for sure, or threads are in the middle of something else.
  std::optional<std::vector<BlockRef>> open_calls(uint32_t slot, Way way,
                                                  const elf::UnwindRegisters& there) const;
  // The same of a thread that stands at `position`, with the program's registers `regs`.
  std::optional<std::vector<BlockRef>> open_calls_at(const Position& position,
                                                     const user_regs_struct& regs, uint32_t slot);
  // Of these calls, those of units that another stands for now are the new unit's.
  void hand_over(uint32_t slot, std::span<const BlockRef> calls);
  // A thread goes on behind a system call in another unit than it made the call in.
  void leave_behind_call(uint32_t slot, BlockRef ref, BlockRef to);

  // longjmp and exceptions: the stack as it is now, and the jump out of it.
  // Both come from probes of one procedure, `unit`: only its own snapshot says where it was called.
  void snapshot(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& registers);
  // `after`: the registers where it goes to; the pc is 0 if that is not known.  `by_return`:
  // control goes there by a return.
  void commit(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& after, bool by_return);
  // A return is going to pop what its own block puts at `at`, over what is there now.  What lies
  // from the stack pointer up to there is looked at, too: arguments may be popped along.
  void return_slot(uint32_t slot, TargetAddr stack_pointer, TargetAddr at);
  // That return is about to be made.
  void commit_return(uint32_t slot, TargetAddr at);
  // A return has led to `pc`, for which it asked.  Named where that is in the middle of a procedure
  // but behind no call, and no probe has announced it.
  void returned(uint32_t slot, TargetAddr pc);
  // A return pops what its own block has pushed: a jump.
  void commit_jump_by_return(uint32_t slot, uint32_t unit, const elf::UnwindRegisters& after);
  // Memory is given back: who waits on stacks there (left_stacks.h) never goes on.
  void stacks_unmapped(TargetRange range);
  // Nor does anybody who waits anywhere: the process ends, or is let go.
  void close_left_stacks(profile::AbnormalKind kind, const std::string& detail);

  elf::BackTrace back_trace(const elf::UnwindRegisters& registers, uint32_t slot) const;

  void issue(const std::string& scope, const std::string& message, uint64_t amount = 1);

  // Closes a thread ahead of an event (execve) that may fail; what was booked can then be taken
  // back, and nothing else.
  struct Ahead {
    std::vector<std::function<void(Ledger&)>> undo;
    std::vector<Interruption> interruptions;  // of the thread
  };
  Ahead close_ahead(const user_regs_struct& regs, uint32_t slot, profile::AbnormalKind kind,
                    const std::string& detail);
  void take_back(uint32_t slot, Ahead ahead);

  // What the thread of a slot has booked since the last time it was asked.
  Bookings take_bookings(uint32_t slot);
  // Stands for the thread with which a forked process began, once the process has ended.
  static constexpr uint32_t kInheritedSlot = UINT32_MAX;
  // Stands for threads that have ended and have all their bookings.
  static constexpr uint32_t kEndedSlot = UINT32_MAX - 1;
  bool stacks_were_switched() const { return stacks_switched_; }

 private:
  // Without `in_loop`.
  Position place_of(const user_regs_struct& regs, uint32_t slot);
  std::optional<Position::InLoop> loop_at(const Position& position, const user_regs_struct& regs,
                                          uint32_t slot) const;
  bool has_entered(CacheAddr address) const;
  Position at_half_probe(const Unit& unit, uint32_t edge, uint32_t offset);
  Position locate_in_unit(const Unit& unit, uint32_t offset, const user_regs_struct& regs,
                          uint32_t slot);
  Position locate_in_block(const Unit& unit, uint32_t block, uint32_t offset,
                           const user_regs_struct& regs, uint32_t slot);
  Position locate_in_gateway(uint32_t slot);
  Position locate_request(translate::Request request, uint32_t argument, uint32_t slot);
  uint32_t argument_of(uint32_t slot) const;
  Position locate_behind_ask(translate::Mark::Kind kind, uint32_t slot);
  Position locate_in_lookup(const Area& area, const user_regs_struct& regs, uint32_t slot);
  Position behind_popped_return(const user_regs_struct& regs);
  Position in_front_of_return(const user_regs_struct& regs);
  Position locate_in_thunk(const Unit& unit, uint32_t offset);
  Position at_start_of(BlockRef ref);
  Position at_end_of(BlockRef ref);
  Position at_end_along(BlockRef ref, uint32_t edge);
  Position at_check(uint32_t check);
  Position behind_call();
  bool is_behind_push(const Unit& unit, uint32_t offset, uint32_t field);
  Position on_inline_edge(const Unit& unit, uint32_t block, uint32_t offset);
  Position behind_return(TargetAddr target);
  static Position on_way_to(TargetAddr target);
  TargetAddr described_by(TargetAddr back) const;
  uint64_t tcb_u64(uint32_t slot, uint32_t offset) const;
  user_regs_struct waiting_registers(const user_regs_struct& regs, uint32_t slot) const;
  struct Entering {
    Position position;  // where the signal struck
    user_regs_struct registers{};
    BlockRef handler;  // not valid: in the middle of a block
    bool is_booked = false;
  };
  const Entering* at_handler(const Position& position, const user_regs_struct& regs,
                             uint32_t slot) const;
  const Interruption* on_way_back(const user_regs_struct& regs, uint32_t slot) const;
  TargetAddr insn_address(BlockRef ref, uint32_t index) const;
  bool ends_by_itself(BlockRef ref) const;
  bool may_come_back(BlockRef call) const;
  bool is_plain(uint32_t slot) const;
  bool may_be_jumping(uint32_t slot, Way way, const elf::UnwindRegisters& there) const;
  struct Start {  // of a back-trace
    elf::UnwindRegisters registers;
    TargetAddr pc;
    bool at_return_address = false;  // the first frame is a caller whose call is open
  };
  struct OpenFrames {
    elf::BackTrace trace;
    size_t first = 0;  // those before it are not
  };
  OpenFrames open_frames(const Position& position, const Start& start, uint32_t slot) const;
  std::optional<Start> start_at(const Position& position, const user_regs_struct& regs) const;
  OpenFrames frames_from(const Start& start, uint32_t slot) const;
  std::optional<std::vector<BlockRef>> calls_of(const OpenFrames& open) const;
  bool is_described(TargetAddr pc) const;
  // Everything that is booked goes through these, in the name of the thread of `booker_`.
  void book_term(const TermKey& key, uint64_t entered, uint64_t left, const std::string& detail);
  void book_unexecuted(BlockRef ref, uint32_t first, uint32_t last);
  void book_uncounted(BlockRef ref);
  void book_overcounted(uint32_t unit, uint32_t edge);
  void book_unarrived(BlockRef ref);
  void go_on_in_loop(Position::InLoop& loop, uint64_t context);
  void book_in_loop(const Position::InLoop& loop, uint64_t value);
  void unbook_entered(const TermKey& key);
  void unbook_overcounted(uint32_t unit, uint32_t edge);
  void note(const BookingKey& key, int64_t times);
  // The same in the file that outlives the monitor, if there is one.
  void keep_term(const TermKey& key, const std::string& detail, int64_t entered, int64_t left);
  void keep_partial(const PartialKey& key, int64_t delta);
  void keep_move(const BlockRef& from, const BlockRef& to);
  void keep_issue(const std::string& scope, const std::string& message, int64_t amount);
  void keep_where(uint32_t slot, BlockRef at);
  void keep_interruptions(uint32_t slot);
  void take_back_issue(const std::string& scope, const std::string& message, uint64_t amount);
  void name_switched_stacks(const std::string& message);
  void enter_block(BlockRef ref, profile::AbnormalKind kind, const std::string& detail);
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
  bool may_abandon(const Interruption& record, uint64_t stack_pointer) const;
  void abandon_to(uint32_t slot, const Interruption& record, uint64_t stack_pointer);
  elf::SignalContext interrupted_state(const Interruption& record) const;
  std::optional<uint64_t> handler_return(uint32_t slot, uint64_t stack_pointer) const;
  std::optional<elf::SignalContext> signal_context(uint32_t slot, TargetAddr pc,
                                                   uint64_t context) const;

  void enter_unexecuted(BlockRef ref, profile::AbnormalKind kind, const char* detail);
  void inherit_frames(const elf::BackTrace& trace, uint32_t slot, size_t first);
  void enter_inherited(TargetAddr return_address, uint64_t times);
  bool is_inherited(TargetAddr return_address) const;
  void snapshot_of_attach(uint32_t slot, uint32_t unit_id);
  void inherit_handlers(const elf::BackTrace& trace, uint32_t slot);
  void land_behind_call(TargetAddr destination);
  // Stacks that are left and gone back to (ledger_stacks.cpp).
  struct Jump {  // out of the stack; its frames are closed, its last instruction is to come
    uint32_t unit = 0;
    uint64_t stack_pointer = 0;  // where it goes
    bool by_return = false;
    elf::BackTrace open;  // whose calls are, where it goes
  };
  struct Landing {  // where a jump goes to
    elf::UnwindRegisters registers;
    bool by_return = false;
    uint64_t stack_pointer() const { return registers.value[elf::kDwarfRsp]; }
    TargetAddr pc() const { return TargetAddr(registers.value[elf::kDwarfPc]); }
  };
  const Jump* jump_under_way(const Position& position, uint32_t slot) const;
  const elf::BackTrace* open_after_jump(const Position& position, uint32_t slot) const;
  elf::BackTrace open_behind(const elf::BackTrace& trace, size_t first, TargetAddr landed);
  bool ends_in_jump(BlockRef ref) const;
  const elf::BackTrace* stack_when_entered(const Position& position, uint32_t slot) const;
  std::optional<uint64_t> bottom_of(uint32_t slot) const;
  elf::BackTrace back_trace_to(std::optional<uint64_t> bottom,
                               const elf::UnwindRegisters& registers, uint32_t slot) const;
  static bool is_below(uint64_t bottom, const elf::UnwindRegisters& frame);
  bool is_intact(const elf::BackTrace& trace) const;
  bool is_within_procedure(const elf::BackTrace& trace, size_t target, TargetAddr pc) const;
  void jump_within(uint32_t slot, uint32_t unit, const elf::BackTrace& trace, size_t target,
                   const Landing& landing);
  void switch_stack(uint32_t slot, uint32_t unit, const elf::BackTrace& trace,
                    const Landing& landing);
  static bool is_within_own_frame(const elf::BackTrace& trace, const elf::BackTrace& there);
  void explain_end(const user_regs_struct& regs, uint32_t slot, const Position& position) const;
  void explain_switch(uint32_t slot, const char* what, const elf::BackTrace& trace,
                      const elf::BackTrace& there, const Landing& landing) const;
  void leave_stack(uint32_t slot, uint32_t unit, const elf::BackTrace& trace);
  void go_on(uint32_t slot, uint32_t unit, LeftStacks::Found found, const Landing& landing);
  void begin_stack(uint32_t slot, const elf::BackTrace& there, const Landing& landing);
  void close_left_stack(const LeftStack& stack, profile::AbnormalKind kind,
                        const std::string& detail);
  void move_frames(const elf::BackTrace& trace, size_t first, std::optional<uint32_t> from,
                   uint32_t to);
  void note_waiting(LeftStack& stack, uint32_t slot);
  void begin_behind(BlockRef ref);
  bool is_unborn(const Position& position, const user_regs_struct& regs, uint32_t slot) const;
  void take_birth_back(uint32_t slot);
  bool is_complete(const elf::BackTrace& trace) const;
  bool is_planted(TargetAddr return_address) const;
  bool was_inherited(TargetAddr return_address, uint32_t slot);

  CodeCache& cache_;
  ModuleMap& modules_;
  Region& region_;
  tracee::Process& process_;
  KeptRun* kept_ = nullptr;
  Interruptions interruptions_;
  std::map<uint32_t, Interruption> returning_;  // by thread: what it goes back to
  std::map<uint32_t, Entering> entering_;       // by thread: the handler that it entered last
  uint32_t booker_ = 0;
  std::map<uint32_t, Bookings> bookings_;                           // by slot
  std::vector<std::function<void(Ledger&)>>* recording_ = nullptr;  // how to take bookings back
  bool stacks_switched_ = false;
  std::vector<TargetRange> bottoms_;
  // By return address and slot: frames open since before our time.
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> inherited_;
  profile::AbnormalKind inherited_kind_ = profile::AbnormalKind::kThreadStart;
  std::map<uint32_t, elf::BackTrace> attach_traces_;  // by slot, until its first snapshot
  LeftStacks left_;
  std::map<uint32_t, uint64_t> stack_begins_;  // by slot: of stacks that threads went to anew
  std::map<uint32_t, Jump> jumps_;             // by slot, until the unit is entered again
  struct Birth {  // of a thread behind the `syscall` that ends block `at`
    BlockRef at;
    uint64_t stack_pointer = 0;
    bool inherits_frames = false;
  };
  bool is_of_birth(const Birth& birth, const elf::UnwindRegisters& frame) const;
  const Birth* birth_of_stack(uint32_t slot) const;
  UndescribedFrames undescribed_frames(uint32_t slot) const;
  std::map<uint32_t, Birth> births_;                                   // by slot
  std::map<std::pair<uint32_t, uint32_t>, elf::BackTrace> snapshots_;  // by slot and unit
  // By slot and place: what lay there, behind what lay below it on the stack.
  std::map<std::pair<uint32_t, TargetAddr>, std::vector<uint64_t>> return_slots_;
  std::map<uint32_t, TargetAddr> announced_;  // by slot: where its last return with a probe led
  mutable TargetRange main_stack_;            // as far as it is known
};

// The frame that is active when the stack pointer has this value: all inner ones are abandoned.
std::optional<size_t> frame_holding(const elf::BackTrace& trace, uint64_t stack_pointer);

// What a thread has put down in its block of shared memory, at `block`, when it asked: the general
// registers.  The others are those of `regs`.
user_regs_struct registers_put_down(const uint8_t* block, const user_regs_struct& regs);

// DWARF-numbered registers from the kernel's.
elf::UnwindRegisters unwind_registers(const user_regs_struct& regs);

}  // namespace tally::engine
