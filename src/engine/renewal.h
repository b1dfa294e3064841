// Procedures that turn out to be hot are translated again with measured weights, in mid-run.
//
// Problem.  On a program's first run nobody knows which side of a branch is the rule: counters are
// placed by rules of thumb, and blocks lie by address.  Later runs know better (edge_weights.h),
// but a machine that tests each change of a program sees first runs only.
//
// Idea.  Counters say what has run so far.  Some milliseconds after the start, and again at growing
// intervals, the monitor looks which units have counted much.  If there are any, it makes the
// program's next return, and one of the next indirect jumps of these units, ask (what they go by is
// held for a moment; some visits may be noted first, see cache/known_targets.h).  There
//
//   - the only thread waits for an answer, between two blocks: what it has left is counted, what it
//     will enter is not, and the calls that are open are those that its back-trace shows;
//   - the equations of a unit hold if these calls are taken to be open, so its edges can be solved
//     to the last count.  (They rest on the back-trace: counters on chords leave nothing over to
//     check it by, but that no count is negative.  So where a trace might be wrong, nothing is
//     done: frames that nothing describes, handlers, stacks that were switched.)
//   - the procedure is translated again, all ways to the old unit are led to the new one, and the
//     ledger hands the open calls over:
//
//        old unit   call executed 1000 times, came back 999 times, handed over 1
//        new unit   taken over 1, called 500 times, came back 501 times
//
// A run that began with returns as jumps, and that nobody has told what its returns are like, is
// looked at for that, too (cache/return_targets.h).  If calls and returns had better be paired,
// they are in all that is translated from then on, and all that is busy is translated again.
//
// In a process of several threads, those that run are made to ask in the same way, and get no
// answer until all do.  The others wait in system calls; the conductor stops them there.  Then all
// stand still, and the same holds of all their calls.  (Nobody who runs is stopped: it might be
// inside of the kernel, in the middle of a write that would be cut short.)  A procedure that makes
// such a system call itself is left for another time.
//
// The profile adds up the two (ledger/finish.cpp).  What is exact stays exact: each unit's flow is
// conserved, and the new unit counts as the old one did, only elsewhere.
//
// In a first run that lasts, everything is translated again in the same way, hot or not, so that
// memory can be given back (cache/compact.cpp).  That is done when all of it together has run for
// many times as long as translating took, since it takes half of that again; fewer times where the
// program is large; and once more if the program goes on to much that is new.  What has run seldom,
// and not at all in the last quarter of the run, seems to be over, and gets no code until it runs
// again.  In a process of several threads, one that is held back then makes the system calls which
// that takes, and all others stand still until it has.
//
// Not handled: code that the program may replace, procedures that the ledger takes probes in, runs
// whose counters are kept in a file, programs that Tally attached to, forked processes, a vfork
// child's time, processes that have had more than 64 threads at once, and threads that neither come
// to a return soon nor wait where they can be stopped unseen.  There, and in a loop of direct
// branches, things stay as they were placed.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/code_cache.h"
#include "cache/phases.h"
#include "cache/return_targets.h"
#include "elf/unwind.h"
#include "ledger/ledger.h"
#include "ledger/unit_flow.h"

namespace tally::engine {

class Renewals {
 public:
  using Clock = std::chrono::steady_clock;

  Renewals(Region& region, CodeCache& cache, Ledger& ledger, PhaseTimes& phases)
      : region_(region), cache_(cache), ledger_(ledger), phases_(phases) {}

  // From now on the monitor looks from time to time.  `always`: whatever has run is translated
  // again, at every request where that can be done.
  void begin(bool always);
  // When it wants to look next; never: Clock::time_point::max().
  Clock::time_point next_look() const { return next_look_; }
  // More threads at once than this would stand still for too long.
  static constexpr uint32_t kThreadsMax = 64;
  // Whose counts there are.
  enum class Company : uint8_t {
    kAlone,    // the process has had but one thread, that of slot 0
    kThreads,  // all of which can be made to stand still
    kUnknown,  // there may be others, or they cannot
  };
  // Looks whether there is something to be gained, if it is time.  `slots`: as many threads have
  // been there at once.  True if all threads should be made to stand still for it.
  bool look(Clock::time_point now, Company company, uint32_t slots);
  // True if the next return or jump is waited for.
  bool is_waiting() const { return waiting_ || always_; }
  // The thread of slot 0 is at a return or an indirect jump: `there` are the program's registers
  // where it goes on.
  void at_request(Ledger::Way way, const elf::UnwindRegisters& there, bool alone);
  struct Standing {  // a thread that stands still
    uint32_t slot = 0;
    std::vector<BlockRef> open;      // its calls
    std::optional<uint32_t> inside;  // the unit that it has not left
    bool is_held_back = false;       // at a return or jump
  };
  // All that run are to ask at their next return or jump, and are held back there.
  bool is_resting() const { return resting_; }
  void end_rest();
  // These are all the threads that there are, and all their visits have been counted.  `giver`: one
  // that is held back, and can make system calls for us.
  void at_rest(std::span<const Standing> threads, uint32_t slots, std::optional<uint32_t> giver);
  // The thread that gives memory back (CodeCache::give_back), while all others stand still.
  std::optional<uint32_t> giver() const { return giver_; }
  void has_given_back() { giver_.reset(); }

 private:
  void retry();
  CodeCache::GiveNumbers gives_numbers() const;
  // If not, it looks again when it will be.
  bool is_time_to_compact(Clock::time_point now);
  std::vector<uint32_t> movable() const;
  // What is worth it, or everything.
  std::vector<uint32_t> wanted(const std::vector<uint64_t>& counters);
  std::vector<uint64_t> counters(uint32_t slots) const;
  // Of all threads, while they stand still.
  struct Still {
    uint32_t slots = 0;              // as many there have been at once
    std::vector<BlockRef> open;      // calls
    std::vector<uint32_t> occupied;  // units that one is in
    std::vector<uint64_t> counters;  // their sums
    CodeCache::GiveNumbers numbers = CodeCache::GiveNumbers::kKept;
  };
  void translate_again(std::vector<uint32_t> units, const Still& still);
  std::vector<uint32_t> worthwhile(const std::vector<uint64_t>& counters) const;
  // Solved units; those whose equations do not hold now are left out.
  struct Solved {
    uint32_t unit = 0;
    placement::Solution solution;
  };
  // What each unit has counted, at some looks.
  struct Noted {
    Clock::time_point at;
    std::vector<uint64_t> increments;  // by unit
  };
  void note_counted(Clock::time_point now, const std::vector<uint64_t>& counters);
  std::vector<bool> idle_units(const std::vector<uint64_t>& counters) const;
  std::optional<Solved> solve(const UnitFlows& flows, uint32_t id,
                              const std::vector<BlockRef>& open) const;
  std::vector<Solved> solve(const UnitFlows& flows, const std::vector<uint32_t>& units,
                            const std::vector<BlockRef>& open) const;
  std::optional<Renewal> weighed(const Solved& solved) const;
  std::vector<uint32_t> busy(const std::vector<uint64_t>& counters, uint64_t part) const;
  bool asks_for_pairs(const std::vector<Solved>& solved, const UnitFlows& flows,
                      const std::vector<uint64_t>& counters) const;
  // Adds to `units` what is to be translated again if it comes to that.
  std::vector<uint32_t> pair_returns(const UnitFlows& flows, std::vector<uint32_t> units,
                                     const std::vector<BlockRef>& open,
                                     const std::vector<uint64_t>& counters);
  CallsMade calls_of(const std::vector<Solved>& solved, const UnitFlows& flows,
                     const std::vector<uint64_t>& counters) const;

  Region& region_;
  CodeCache& cache_;
  Ledger& ledger_;
  PhaseTimes& phases_;
  Clock::time_point next_look_ = Clock::time_point::max();
  Clock::time_point regular_look_ = Clock::time_point::max();
  Clock::duration pause_{};
  bool waiting_ = false;
  bool always_ = false;
  bool resting_ = false;
  std::optional<uint32_t> giver_;
  Clock::time_point asked_at_;  // for the rest
  int refused_ = 0;             // of those that were waited for
  int retries_ = 0;             // since the last regular look
  int asked_for_pairs_ = 0;
  Clock::time_point begun_;
  Noted earlier_, later_;
  bool compacts_ = false;                       // the next time
  uint64_t made_bytes_ = 0, living_bytes_ = 0;  // of code, at the last one
  uint64_t looks_ = 0;                          // under stress
};

}  // namespace tally::engine
