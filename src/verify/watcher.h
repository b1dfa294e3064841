// The monitor's inside: events of the kernel become steps from block to block.  See monitor.h.
//
//   event -> catch_up     tell of the blocks between where the thread was and where it is
//         -> advance      emulate what can be emulated, from block to block
//         -> let_go       set the breakpoint that catches it next, and resume
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tracee/process.h"
#include "verify/monitor.h"
#include "verify/thread.h"

namespace tally::verify {

// -ERESTARTSYS and its like: the kernel will make the call again, or say EINTR to a handler.
bool may_restart(int64_t result);
// System calls after which other code may be mapped.
bool touches_memory_map(uint64_t number);

class Watcher {
 public:
  Watcher(const WatchOptions& options, Code& code, const std::vector<Checker*>& checkers);
  Result<Outcome> run();

 private:
  // watcher.cpp: events of the kernel
  Status start();
  Status loop();
  Status handle(const tracee::Event& event);
  Status thread_ready(Thread& t);
  void exiting(Thread& t);
  void abandon_handler(Thread& t, uint64_t context);
  void gone(const tracee::Event& event);
  Status exec(const tracee::Event& event);
  static bool is_own_trap(const Thread& t, const tracee::Event& event);
  static bool ends_step(const Thread& t, const tracee::Event& event, const user_regs_struct& regs);
  Status signal_stop(Thread& t, const tracee::Event& event);
  Status deliver(Thread& t, const tracee::Event& event, user_regs_struct& regs);
  Status handler_entered(Thread& t, user_regs_struct& regs);
  Status step_done(Thread& t, user_regs_struct& regs);
  void end_everything(const std::string& why);
  bool should_end();
  bool should_turn_cold();
  Status cold_signal(Thread& t, const tracee::Event& event, user_regs_struct& regs);
  Status adopt_child(Thread& parent, const tracee::Event& event);

  // interrupting.cpp: signals that come at a time of their own
  static bool is_interrupting(const Thread& t, const siginfo_t& info);
  static void note_interrupting(Thread& t);
  static void leave_stack(Thread& t, uint64_t stack_pointer);
  void note_handler_set(Thread& t);
  void note_signal_place(Thread& t, SignalPlace what);

  // turns.cpp: one thread at a time
  bool takes_turns(const Thread& t) const;
  bool is_alone(const Thread& t) const;
  bool nobody_writes(const Thread& t) const;
  Status take(const tracee::Event& event);
  void begin_turn(Turns& turns, pid_t tid);
  void hold(Thread& t, const tracee::Event& event);
  static void drop_held(Turns& turns, Thread& t);
  Status give_turns(Space& space);
  Status look_after_turns();

  // calls.cpp: system calls
  Status call_stop(Thread& t);
  Status call_entered(Thread& t, user_regs_struct& regs);
  Status call_done(Thread& t, user_regs_struct& regs);
  Status returned_from_signal(Thread& t, user_regs_struct& regs);
  Status memory_changed(Thread& t, int64_t result);
  void before_trap_call(Thread& t, user_regs_struct& regs);
  void after_trap_call(Thread& t, user_regs_struct& regs);
  void unblock_trap(Thread& t);
  void note_maps(Thread& t);
  void note(const std::string& words);
  void note_writes(const Thread& t);

  // walk.cpp: from block to block
  bool catch_up(Thread& t, uint64_t rip, bool asynchronous);
  void lose(Thread& t, uint64_t rip, const char* where);
  void put_registers(Thread& t, const user_regs_struct& regs);
  BlockId arrive(Thread& t, uint64_t rip);  // kNoBlock: no code there
  void split(BlockId upper, BlockId lower);
  void begin_at(Thread& t, uint64_t rip);
  void follow(Thread& t, uint64_t rip, EdgeRole role);
  void follow_branch(Thread& t, uint64_t rip);
  void follow_return(Thread& t, uint64_t rip);
  void enter(Thread& t, BlockId id);
  void cut_short(const Position& position, LinkAddr at);
  bool is_stepped(const Thread& t, BlockId id, const Mapped* mapped) const;
  Status advance(Thread& t, user_regs_struct& regs);
  Status advance_from_breakpoint(Thread& t, user_regs_struct& regs);
  bool emulate(Thread& t, isa::Registers& regs, bool ahead, bool& changed);
  int emulated_max(const Thread& t) const;
  bool emulate_block(Thread& t, isa::Registers& regs, const Mapped*& mapped);
  void let_go(Thread& t, const user_regs_struct& regs, int signal = 0);
  void through_vsyscall(Thread& t, const user_regs_struct& regs, int signal);
  Motion prepare(Thread& t, uint64_t rip);
  bool stop_at(Thread& t, BlockId id, const Mapped& mapped);
  void single(Thread& t, uint64_t rip, int signal);
  Status opaque(Thread& t, const isa::Registers& regs, user_regs_struct& kernel_regs);
  bool inside(Thread& t, BlockId id, uint64_t rip) const;
  const Mapped* mapped_of(Thread& t, BlockId id) const;

  // cold.cpp: watching single blocks
  Status turn_cold(Thread& t, user_regs_struct& regs);
  void begin_cold();
  void leave_to_the_cold(Thread& t);
  bool anyone_warm() const;
  void retire_warm_breakpoints();
  void arm(Space& space);
  bool is_watchable(Space& space, BlockId id);
  void drop(BlockId id);
  Status cold_stop(Thread& t, user_regs_struct& regs);
  Status cold_call(Thread& t, const tracee::SystemCallStop& stop, user_regs_struct& regs);
  Status cold_go(Thread& t, user_regs_struct& regs, bool changed);
  BlockId cold_block_ending_at(Thread& t, uint64_t rip) const;
  void cold_left(Thread& t, BlockId id, uint64_t rip);
  void cold_left_call(Thread& t, BlockId id, uint64_t rip);

  template <class Tell>
  void tell(Tell&& what) {
    for (Checker* c : checkers_) what(*c);
  }

  const WatchOptions& options_;
  Code& code_;
  const std::vector<Checker*>& checkers_;
  Outcome outcome_;
  pid_t root_ = 0;
  std::unordered_map<pid_t, Thread> threads_;
  std::unordered_map<pid_t, pid_t> unclaimed_;  // new thread or process -> thread that made it
  std::unordered_map<pid_t, std::array<uint64_t, 4>> trap_ignored_;  // as it was set
  std::chrono::steady_clock::time_point began_;
  double next_progress_ = 0;
  bool ending_ = false;
  bool cold_ = false;
  std::unordered_set<BlockId> cold_blocks_;
};

}  // namespace tally::verify
