// When a thread that goes one step at a time has gone as many as it is to (--stress-end).
//
// Problem.  A thread that waits for the monitor's answer goes as many steps as the monitor lets it,
// thousands beside other work: the same number of steps then ends it at another place each time,
// and most of them in waiting.
//
// Idea.  A wait counts as kStepsOfWait steps, however long it lasts.  In a longer one the last of
// them do not count; after a shorter one those that are missing are made up for at its end.  Each
// number is a place then: behind so many instructions, or so far into so many waits.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/address.h"
#include "base/result.h"
#include "tracee/process.h"

namespace tally::engine {

class EndSteps {
 public:
  static constexpr uint64_t kStepsOfWait = 8;

  // `steps`: at least 1.  Instructions from `wait_begin` up to, not with, `wait_end` wait.
  EndSteps(uint64_t steps, CacheAddr wait_begin, CacheAddr wait_end)
      : left_(steps), wait_begin_(wait_begin), wait_end_(wait_end) {}

  // One more step has led to `at`.  True if the thread is to be ended there.
  bool is_end(CacheAddr at) {
    if (wait_begin_ <= at && at < wait_end_) {
      if (waited_ < kStepsOfWait) ++waited_, count(1);
    } else {
      count(1 + (waited_ == 0 ? 0 : kStepsOfWait - waited_));
      waited_ = 0;
    }
    return left_ == 0;
  }

 private:
  void count(uint64_t steps) { left_ -= left_ < steps ? left_ : steps; }

  uint64_t left_;
  CacheAddr wait_begin_, wait_end_;
  uint64_t waited_ = 0;
};

// Lets the thread, the only one that there is, go until it is to be ended.  What happens before
// that and is not the end of a step ends the stepping, and is returned.
Result<std::optional<tracee::Event>> go_steps(pid_t tid, EndSteps steps);

}  // namespace tally::engine
