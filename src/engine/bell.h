// Wakes the conductor, which sleeps in waitpid.
//
// Problem.  No thread can wake another from waitpid but by a signal, and a signal that comes just
// before it falls asleep would be missed.
//
// Idea.  A timer that goes on sending a signal to the conductor's thread until it has been heard.
#pragma once

#include <signal.h>
#include <time.h>

#include <atomic>
#include <chrono>

namespace tally::engine {

// Made by the conductor's thread; one at a time.
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  // False where the kernel gives us no timer: then nothing ever rings.
  bool works() const { return works_; }
  // From any thread or signal handler.
  void ring();
  // The same later, instead of what was asked for before.
  void ring_after(std::chrono::nanoseconds delay);
  // By the conductor: it has heard, or need not hear any more.
  void silence();

 private:
  std::atomic<bool> works_{false};
  std::atomic<bool> rings_{false};
  timer_t timer_{};
  struct sigaction former_ {};
};

}  // namespace tally::engine
