// Image runs that are over become profiles here, in a thread of its own: solving and writing take a
// while, and the other processes should not wait for it.
//
// Limits: image runs that wait for their turn keep their counters in memory, so that `add` waits
// when there are too many of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/result.h"
#include "engine/image_run.h"

namespace tally::engine {

class Finisher {
 public:
  explicit Finisher(std::function<Status(profile::Profile)> keep) : keep_(std::move(keep)) {}
  ~Finisher();
  Finisher(const Finisher&) = delete;
  Finisher& operator=(const Finisher&) = delete;

  void add(std::unique_ptr<ImageRun> image);
  // Waits until all are done; the first error of `keep`, if any.
  Status finish();

  void start() {
    thread_ = std::thread([this] { run(); });
  }

 private:
  void run();

  std::function<Status(profile::Profile)> keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<ImageRun>> waiting_;
  bool no_more_ = false;
  std::optional<Error> error_;
  double monitor_cpu_seconds_ = 0;  // what earlier profiles were told
  std::thread thread_;
};

}  // namespace tally::engine
