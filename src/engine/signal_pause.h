// Signals wait while a stopped thread makes system calls for us.
#pragma once

#include "tracee/process.h"

namespace tally::engine {

class SignalPause {
 public:
  SignalPause(tracee::Process& process, pid_t tid)
      : process_(process), tid_(tid), mask_(process.signal_mask(tid)) {
    process_.set_signal_mask(tid_, ~uint64_t{0});
  }
  ~SignalPause() { process_.set_signal_mask(tid_, mask_); }
  SignalPause(const SignalPause&) = delete;
  SignalPause& operator=(const SignalPause&) = delete;

 private:
  tracee::Process& process_;
  pid_t tid_;
  uint64_t mask_;
};

}  // namespace tally::engine
