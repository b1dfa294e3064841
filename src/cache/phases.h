// Where the monitor's time for one image run goes, phase by phase.
//
// Problem.  Programs that start many short processes are as slow as Tally's own work for each of
// them, and a sampler does not say what a system call or a stop was made for.
//
// Idea.  A clock is read where a phase begins and where it ends; an inner phase's time is not its
// outer one's, so that the phases add up.  Each image run is worked for by one thread at a time.
// The times are free facts of the run, `us_...` (docs/formats.md), which bench/startup.py prints.
//
// Limits: it is the wall clock, so waiting for the target at a stop is in it.  Writing the profile
// down comes after the last fact is known and is not in it.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace tally::engine {

enum class Phase : uint8_t {
  kBegin,       // taking over a process at its exec or fork, but for what follows
  kRegion,      // making and mapping the shared memory, making text non-executable
  kModules,     // reading the map of memory, opening files, their symbols
  kDiscover,    // bounds of procedures, blocks, edges
  kPlace,       // where counters go
  kEmit,        // writing translations
  kLink,        // registering, joining
  kSystemCall,  // system calls that concern the monitor
  kRenew,       // weights for hot procedures in mid-run, and ways to their new units
  kServe,       // the rest of what mailboxes ask for
  kStop,        // births and ends of threads, with their back-traces
  kSolve,       // counts from counters, at the end
};
inline constexpr std::array kPhaseFacts = {"us_begin", "us_region", "us_modules", "us_discover",
                                           "us_place", "us_emit",   "us_link",    "us_system_calls",
                                           "us_renew", "us_serve",  "us_stops",   "us_solve"};

class PhaseTimer;

class PhaseTimes {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::duration spent(Phase phase) const { return spent_[static_cast<size_t>(phase)]; }
  // Calls `name(fact, microseconds)` for each phase.
  template <class Name>
  void name_all(Name name) const {
    for (size_t i = 0; i < spent_.size(); ++i) {
      const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(spent_[i]);
      name(kPhaseFacts[i], static_cast<uint64_t>(spent.count()));
    }
  }

 private:
  friend class PhaseTimer;
  std::array<Clock::duration, kPhaseFacts.size()> spent_{};
  PhaseTimer* innermost_ = nullptr;
};

// One phase, for as long as this lives.
class PhaseTimer {
 public:
  PhaseTimer(PhaseTimes& times, Phase phase)
      : times_(times), phase_(phase), outer_(times.innermost_), since_(PhaseTimes::Clock::now()) {
    if (outer_ != nullptr) outer_->charge(since_);
    times_.innermost_ = this;
  }
  ~PhaseTimer() {
    const auto now = PhaseTimes::Clock::now();
    charge(now);
    if (outer_ != nullptr) outer_->since_ = now;
    times_.innermost_ = outer_;
  }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;

 private:
  void charge(PhaseTimes::Clock::time_point now) {
    times_.spent_[static_cast<size_t>(phase_)] += now - since_;
    since_ = now;
  }

  PhaseTimes& times_;
  Phase phase_;
  PhaseTimer* outer_;
  PhaseTimes::Clock::time_point since_;
};

}  // namespace tally::engine
