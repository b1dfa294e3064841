// The monitor: follows an unmodified program from outside, and tells checkers what it does.
//
// Problem.  To judge a profile one needs to know what the original program did, from a source that
// shares nothing with the profiler: no inserted code, no shifted addresses, no translated text
// (Moseley, Debray and Andrews, "Verifying Program Profiles", sections 2 and 3).
//
// Idea.  Another address space, ptrace, and breakpoints where control cannot be known in advance:
//
//     0x10 mov, add, jmp 0x40      no stop: the jump is unconditional
//     0x40 cmp, call 0x80          no stop either
//     0x80 test, je 0x90           stop here; je is emulated from the flags
//     0x82 lea, sub, cmp, jb 0x70  emulated: nothing in it needs the processor
//     0x84 movaps, ..., ret        run up to `ret`, stop, emulate it
//
// The paper stopped twice a block (a breakpoint at the last instruction, a step over it).  Here a
// block costs no stop when its end is known, and at most one when it is not: the branch itself is
// emulated (isa/emulate.h), so breakpoints are never stepped over and stay in place.  And while no
// other thread executes, blocks made of nothing but plain integer instructions are emulated as a
// whole (`ahead`); therefore threads take turns (turns.cpp).  Every block that is executed is told
// of, in order, thread by thread; nothing is derived.
//
// Where a breakpoint may not stand (code that changes, code that overlaps), threads are stepped.
//
//   checkers (edges.h, ...)   what to do with events
//   Monitor                   events of the kernel -> events of the program (watch.h)
//   Code, Space               blocks; mappings and breakpoints
//   tracee/                   ptrace
//
// What the program can notice is in docs/verify.md.  What is not followed is counted in
// `Outcome::lost` and named; silence means that nothing was lost.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "claims/claims.h"
#include "verify/code.h"

namespace tally::verify {

using claims::EdgeRole;

// What a place has to do with signals; the last one counts for most.
enum class SignalPlace : uint8_t {
  kSet,        // a handler, as far as the program says
  kOwn,        // ... whose signal an instruction of the thread caused, or the thread sent itself
  kSentThere,  // control went on there, for a handler had changed its way back; not of kOwn
  kHandler,    // began for a signal that came at a time of its own
};

// What a checker may look at.  Each function is called when the thing has happened; a checker
// overrides those it wants.
class Checker {
 public:
  virtual ~Checker() = default;
  // Control arrived at the first instruction, whichever way.
  virtual void block_entered(BlockId block) { (void)block; }
  // What was entered is not executed from `at` on: a fault, a signal that never came back, the end.
  virtual void block_cut_short(BlockId block, LinkAddr at) { (void)block, (void)at; }
  // kCallReturn goes from the calling block to the one behind it, when a return went there.
  virtual void edge_taken(BlockId from, BlockId to, EdgeRole role) {
    (void)from, (void)to, (void)role;
  }
  virtual void procedure_called(BlockId from, BlockId entry) { (void)from, (void)entry; }
  virtual void procedure_left(BlockId from, BlockId to) { (void)from, (void)to; }
  // Control began here out of turn: a thread, a signal's handler, an odd return.
  virtual void began(BlockId block) { (void)block; }
  virtual void thread_born(pid_t process, pid_t thread) { (void)process, (void)thread; }
  virtual void thread_gone(pid_t process, pid_t thread) { (void)process, (void)thread; }
  // The first one has no parent (0).
  virtual void process_born(pid_t process, pid_t parent) { (void)process, (void)parent; }
  virtual void process_gone(pid_t process) { (void)process; }
  virtual void program_started(pid_t process, const std::string& program) {
    (void)process, (void)program;
  }
  virtual void signal_place(BlockId block, SignalPlace what) { (void)block, (void)what; }
  // Behind block_entered: by the handler of a signal that came at a time of its own (from a timer,
  // another thread or process), or by what that called.
  virtual void interrupting_block(BlockId block) { (void)block; }
  // A block was cut: `upper` keeps its beginning, and falls into `lower`, which is new.
  virtual void block_split(BlockId upper, BlockId lower) { (void)upper, (void)lower; }
};

struct WatchOptions {
  std::vector<std::string> command;
  bool follow_children = true;
  bool ahead = true;             // emulate plain blocks as a whole
  uint64_t turn_blocks = 20000;  // while other threads wait (turns.cpp)
  bool deny_rseq = false;        // answer rseq() with ENOSYS, as `tally profile` does
  // Instead of surroundings that are alike each time (surroundings.h).
  bool randomize = false;      // addresses
  bool upwards = false;        // memory is placed from below
  unsigned more_mappings = 0;  // of memory that nobody uses
  double seconds_max = 0;      // then the program is ended; 0: never
  // After half of that many seconds only cold blocks are watched, each for itself (cold.cpp): those
  // that `choose_cold` names, given how many stops may still be made.  0: no budget.
  double budget_seconds = 0;
  std::function<std::vector<BlockId>(uint64_t stops)> choose_cold;
  const std::atomic<bool>* interrupted = nullptr;  // set from outside: end now
  // Called a few times a second.
  std::function<void(uint64_t blocks, double seconds)> progress;
};

struct Outcome {
  bool exited = false;  // the first process; else `signal`
  int exit_status = 0;
  int signal = 0;
  bool complete = true;  // false: ended by us, see `why_incomplete`
  std::string why_incomplete;
  uint64_t blocks = 0;    // executed
  uint64_t emulated = 0;  // of them without the processor
  uint64_t breakpoint_stops = 0;
  uint64_t system_call_stops = 0;
  uint64_t steps = 0;  // single steps
  uint64_t signal_stops = 0;
  uint64_t other_stops = 0;
  double seconds = 0;
  double waiting_seconds =
      0;  // of them, for the kernel to report: stops and the program's own time
  unsigned processes = 0;
  unsigned threads = 0;
  bool cold_only = false;        // from some time on
  double followed_seconds = 0;   // before that
  std::vector<BlockId> watched;  // cold blocks that were watched to the end
  bool looks_at_input = true;    // it made system calls about descriptor 0, or nobody knows
  bool reads_mappings = false;   // the program opened /proc/self/maps or the like
  std::string writes_to;         // the first file that the program opened for that
  uint64_t lost = 0;             // times control was found where no step led
  std::string first_lost;
  std::vector<std::string> notes;  // for people: what was done otherwise than usual
  uint64_t stops() const {
    return breakpoint_stops + system_call_stops + steps + signal_stops + other_stops;
  }
};

// Runs the program and tells `checkers`.  `code` may know blocks already (a profile's).  Unless
// asked for, address randomization is off in the program, whatever it is here.
Result<Outcome> watch(const WatchOptions& options, Code& code,
                      const std::vector<Checker*>& checkers);

}  // namespace tally::verify
