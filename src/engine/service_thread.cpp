// See service_thread.h.
#include "engine/service_thread.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace tally::engine {
namespace {

// Nobody is missed even if a bell is not heard.
constexpr auto kSleepMax = std::chrono::milliseconds(200);
constexpr long kPollNanoseconds = 200'000;
constexpr size_t kFutexesMax = 128;

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

// As in linux/futex.h of 5.16 and later.
struct FutexWaiter {
  uint64_t value;
  uint64_t address;
  uint32_t flags;
  uint32_t reserved;
};
constexpr uint32_t kFutex32Bits = 2;

FutexWaiter waiter(const uint32_t* word, uint32_t value) {
  return {value, reinterpret_cast<uint64_t>(word), kFutex32Bits, 0};
}

void nap(long nanoseconds) {
  const timespec duration{0, nanoseconds};
  nanosleep(&duration, nullptr);
}

}  // namespace

void ServiceThread::add(Service& service) {
  services_.push_back(&service);
  ring();
}

void ServiceThread::remove(Service& service) {
  std::erase(services_, &service);
}

void ServiceThread::ring() {
  bell_.fetch_add(1);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell_), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void ServiceThread::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  ring();
  thread_.join();
}

// The mutex is held.
bool ServiceThread::serve_all() {
  bool any = false;
  for (Service* service : services_) any |= service->serve_all();
  return any;
}

bool ServiceThread::serve() {
  std::lock_guard lock(mutex_);
  return serve_all();
}

void ServiceThread::run() {
  using Clock = std::chrono::steady_clock;
  auto answered = Clock::now();
  auto idle_since = answered;
  const auto has_answered = [&](Clock::time_point asked) {
    patience_.note(asked - answered);
    answered = idle_since = Clock::now();
  };
  while (!stopping_) {
    const auto looked = Clock::now();
    if (serve()) {
      has_answered(looked);
      continue;
    }
    __builtin_ia32_pause();
    if (looked - idle_since < patience_.spin()) continue;
    if (sleep()) has_answered(looked);
    look();
    idle_since = Clock::now();
  }
}

void ServiceThread::look() {
  const auto now = std::chrono::steady_clock::now();
  std::lock_guard lock(mutex_);
  for (Service* service : services_) service->look_for_renewals(now);
}

// When to wake up though nobody asks.
timespec ServiceThread::next_look() const {
  const auto now = std::chrono::steady_clock::now();
  auto next = now + kSleepMax;
  for (const Service* service : services_) next = std::min(next, service->next_look());
  const auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(next, now) - now);
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t nanoseconds = until.tv_nsec + wait.count();
  until.tv_sec += nanoseconds / 1'000'000'000;
  until.tv_nsec = nanoseconds % 1'000'000'000;
  return until;
}

// Whoever posts before it sees that we sleep is found by one more look, and there is no sleep:
// true. Whoever posts later rings.
bool ServiceThread::sleep() {
  std::vector<FutexWaiter> waiters;
  waiters.push_back(waiter(reinterpret_cast<uint32_t*>(&bell_), bell_.load()));
  bool asked = false;
  timespec until{};
  {
    std::lock_guard lock(mutex_);
    for (Service* service : services_) {
      waiters.push_back(waiter(service->doorbell(), service->fall_asleep()));
    }
    asked = serve_all();
    until = next_look();
  }
  if (!asked && !stopping_) {
    const bool too_many = waiters.size() > kFutexesMax;
    if (too_many ||
        (syscall(SYS_futex_waitv, waiters.data(), waiters.size(), 0, &until, CLOCK_MONOTONIC) < 0 &&
         errno == ENOSYS)) {
      nap(kPollNanoseconds);
    }
  }
  std::lock_guard lock(mutex_);
  for (Service* service : services_) service->wake_up();
  return asked;
}

}  // namespace tally::engine
