// The thread of the monitor that answers mailboxes, those of all image runs.
//
// One thread for all: a second spinning thread would take a processor from the targets.  While
// nothing is asked it spins for a moment (patience.h), then sleeps in futex on the doorbells of all
// regions at once.
//
// Limits: Linux waits for at most 128 futexes at once, and knows waiting for several only since
// 5.16; beyond that the thread looks at all mailboxes every fifth of a millisecond.
#pragma once

#include <time.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/patience.h"
#include "engine/service.h"

namespace tally::engine {

class ServiceThread {
 public:
  ServiceThread() = default;
  ~ServiceThread() { stop(); }
  ServiceThread(const ServiceThread&) = delete;
  ServiceThread& operator=(const ServiceThread&) = delete;

  // Cache, modules and ledger of every image that has been added are used under this lock.
  std::mutex& mutex() { return mutex_; }

  // Under the lock.
  void add(Service& service);
  void remove(Service& service);

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  void stop();
  // What a service waits for has changed: when it wants to look next, say.
  void ring();

 private:
  void run();
  bool serve();
  bool serve_all();
  bool sleep();
  void look();
  timespec next_look() const;

  std::mutex mutex_;
  std::vector<Service*> services_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> bell_{0};  // our own doorbell: rung when what it waits for changes
  Patience patience_;              // only `run` uses it
  std::thread thread_;
};

}  // namespace tally::engine
