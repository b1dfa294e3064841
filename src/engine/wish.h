// When a session that has attached to a process is to end: after a while, on SIGINT or SIGTERM, or
// because something failed.
//
// Problem.  The conductor sleeps in waitpid, which no thread can wake, and a signal that comes just
// before it falls asleep would be missed.
//
// Idea.  A wish is a flag and a timer that goes on sending a signal to the conductor's thread until
// the wish has been seen.
#pragma once

#include <chrono>
#include <optional>

namespace tally::engine {

// From any thread or signal handler.
void wish_to_end();
// True once the end is wished for; ends the reminders.  By the conductor only.
bool is_end_wished();

// Made by the conductor's thread; one at a time.
class EndWishes {
 public:
  explicit EndWishes(std::optional<std::chrono::nanoseconds> after);
  ~EndWishes();
  EndWishes(const EndWishes&) = delete;
  EndWishes& operator=(const EndWishes&) = delete;
};

}  // namespace tally::engine
