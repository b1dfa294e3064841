// When a session that has attached to a process is to end: after a while, on SIGINT or SIGTERM, or
// because something failed.  The conductor is woken for it (bell.h).
#pragma once

#include <chrono>
#include <optional>

#include "engine/bell.h"

namespace tally::engine {

// From any thread or signal handler.
void wish_to_end();

// Made by the conductor's thread; one at a time.
class EndWishes {
 public:
  EndWishes(Bell& bell, std::optional<std::chrono::nanoseconds> after);
  ~EndWishes();
  EndWishes(const EndWishes&) = delete;
  EndWishes& operator=(const EndWishes&) = delete;

  // True once the end is wished for; then the bell need not ring for it any more.
  bool is_end_wished();

 private:
  Bell& bell_;
  std::optional<std::chrono::steady_clock::time_point> end_;
};

}  // namespace tally::engine
