// How many instructions each thread executed.
//
// Counters are private to a slot, and a slot's block is given from thread to thread with its
// counters as they are.  So a slot's total is taken when the next thread gets it and at the end of
// the run; the difference is the thread's.  Totals are sums of weighted counters and bookings
// (instruction_weights.h); nothing is added to what the program executes.
//
// Memory: a row for each thread, the first 65,536 of a run; those behind share one.  Only pages of
// counters that a thread has touched are looked at.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cache/region.h"
#include "ledger/instruction_weights.h"
#include "ledger/ledger.h"
#include "profile/model.h"

namespace tally::engine {

class ThreadTotals {
 public:
  ThreadTotals(const Translated& cache, const Region& region, Ledger& ledger)
      : region_(region), ledger_(ledger), weights_(cache) {}

  // A thread gets a slot.  `begun`: "thread", "vfork"; empty for the thread with which the run
  // begins, which began as the run did.
  void begin(uint32_t slot, pid_t tid, const char* begun);
  // Names it by what it is called now: before it becomes another program.
  void name(uint32_t slot);
  // The thread of a slot has ended: "exit", "exit_group", "process end", "signal", "exec".
  void end(uint32_t slot, const char* ended, const std::string& name = {});

  // The run is over, and the counters can still be read: takes the last totals, and calls
  // `add(counter, value)` for each of the first `counters` counters of each slot that is not zero.
  void finish(size_t counters, const std::function<void(size_t counter, uint64_t value)>& add);
  // After `finish`: the rows, whose sum is that of all blocks.  What cannot be attributed is a row
  // of its own and an issue.  `begun`: how the run began.
  void add_rows(profile::Profile& profile, const std::string& begun);

 private:
  static constexpr size_t kRowsMax = 65536;
  struct Slot {
    size_t row = 0;
    pid_t tid = 0;
    uint64_t before = 0;  // what was counted before the thread got it
    bool open = false;
  };
  void settle(Slot& slot, uint32_t number);
  uint64_t counted(uint32_t slot) const;
  uint64_t booked(uint32_t slot);
  void name_shared_row();

  const Region& region_;
  Ledger& ledger_;
  InstructionWeights weights_;
  std::vector<Slot> slots_;
  std::vector<profile::Thread> rows_;
  uint64_t others_ = 0;  // threads that share the row behind the last
};

}  // namespace tally::engine
