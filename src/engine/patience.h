// How long to spin for the next request before going to sleep.
//
// Problem.  Going to sleep and waking cost both sides some 60 us.  Spinning costs what it lasts,
// for nothing if no request comes.  Requests come closely one behind the other while a program
// meets code that is not translated, microseconds to tens of them apart, and hundreds of
// microseconds apart and more where a thread asks for memory now and then.  No one length serves
// both.
//
// Idea.  Of some lengths the average cost is kept that each would have had lately: what lay between
// two requests where that is less than the length, otherwise the length and a sleep.  The length
// that would have been cheapest is taken.  Recent requests count more than those before, so it
// changes within some twenty of them.
//
//     requests apart by    3  2  9  4  3 us     spin for 15 us: a sleep is dearer than any of these
//     then, for a while,   300 350 310 us       for 2 us: to spin is of no use
//
// Not handled: two processes that ask at different rates share one length, as they share the
// thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>

namespace tally::engine {

class Patience {
 public:
  using Duration = std::chrono::nanoseconds;

  // What going to sleep and waking cost, both sides together.
  static constexpr Duration kSleepCost = std::chrono::microseconds(60);

  // So much time lay between a request's answer and the next request.
  void note(Duration apart);
  // How long to spin; the longest, until something is known.
  Duration spin() const { return kLengths[best_]; }

 private:
  static constexpr std::array<Duration, 7> kLengths = {
      std::chrono::microseconds(2),  std::chrono::microseconds(4),  std::chrono::microseconds(8),
      std::chrono::microseconds(15), std::chrono::microseconds(30), std::chrono::microseconds(45),
      std::chrono::microseconds(60)};

  std::array<double, kLengths.size()> costs_{};  // nanoseconds, averages
  size_t best_ = kLengths.size() - 1;
};

}  // namespace tally::engine
