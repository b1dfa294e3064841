// How many returns look their landing up before one asks, where an earlier run's weights are known.
//
// Problem.  A page of code is numbered when a return that looks its landing up asks, which one in
// so many does (landings.h).  Where an earlier run's weights have numbered most of what is returned
// to often from the start, few lookups are left, of some forty instructions each, and a page takes
// 4 KB for the rest of the run.  But a large program may look up millions of landings all the same,
// in a table that no cache holds.
//
// Idea.  Few returns ask, unless those that do keep coming so soon one after the other that looking
// up takes a part of the time that matters.  Then many ask, until they have come seldom for a
// while.  One that comes soon says nothing by itself.
//
//     asks, 32,768 lookups each, apart by     9, 400, 40, 30, 50, 40 ms    then 4,096 lookups
//     ... 4,096 each                          8, 10, 9, 30, 40, 35 ms      32,768 again
//
// Not handled: threads are not told apart, so several that look up seldom may pass for one that
// does so often.
#pragma once

#include <chrono>
#include <cstdint>

namespace tally::engine {

class LookupPace {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr uint32_t kSeldom = 32768, kOften = 4096;
  // Lookups a second from which on they matter: of some forty instructions each.
  static constexpr uint32_t kLookupsPerSecond = 250'000;

  explicit LookupPace(Clock::time_point begun) : last_(begun) {}

  // How many are looked up before one asks.
  uint32_t lookups() const { return came_soon_ < kMany ? kSeldom : kOften; }
  // One asks.
  void note(Clock::time_point now) {
    const std::chrono::duration<double> apart = now - last_;
    const bool soon = apart.count() * kLookupsPerSecond < lookups();
    if (soon && came_soon_ < kMost) ++came_soon_;
    if (!soon && came_soon_ > 0) --came_soon_;
    last_ = now;
  }

 private:
  static constexpr int kMany = 4, kMost = 6;

  Clock::time_point last_;
  int came_soon_ = 0;  // how many asks have, less those that have not
};

}  // namespace tally::engine
