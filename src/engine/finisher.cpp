// See finisher.h.
#include "engine/finisher.h"

#include <sys/resource.h>

#include <utility>

namespace tally::engine {
namespace {

constexpr size_t kWaitingMax = 4;

double own_cpu_seconds() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

}  // namespace

Finisher::~Finisher() {
  {
    std::lock_guard lock(mutex_);
    waiting_.clear();
    no_more_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Finisher::add(std::unique_ptr<ImageRun> image) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < kWaitingMax; });
  waiting_.push_back(std::move(image));
  changed_.notify_all();
}

Status Finisher::finish() {
  {
    std::lock_guard lock(mutex_);
    no_more_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (error_) return *error_;
  return Ok{};
}

void Finisher::run() {
  while (true) {
    std::unique_ptr<ImageRun> image;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return no_more_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      image = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();
    }
    profile::Profile profile;
    image->collect(profile);
    const std::unique_ptr<KeptRun> kept = image->take_kept();
    image.reset();
    // The monitor's time goes to the runs as they end, so that the sum is right.
    const double now = own_cpu_seconds();
    profile.run.monitor_cpu_seconds = now - monitor_cpu_seconds_;
    monitor_cpu_seconds_ = now;
    if (error_) continue;
    if (kept) {
      if (Status replaced = kept->replace_by(profile); !replaced) {
        profile.issues.push_back({"--keep-counters", replaced.error().message, 1});
      }
    }
    if (Status done = keep_(std::move(profile)); !done) {
      std::lock_guard lock(mutex_);
      error_ = done.error();
    }
  }
}

}  // namespace tally::engine
