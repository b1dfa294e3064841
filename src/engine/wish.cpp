// See wish.h.
#include "engine/wish.h"

#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/check.h"

namespace tally::engine {
namespace {

constexpr long kReminderNanoseconds = 10'000'000;
constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGALRM};

std::atomic<bool> wished{false};
std::atomic<bool> has_timer{false};
timer_t timer;
std::array<struct sigaction, kSignals.size()> former;

void set_timer(std::chrono::nanoseconds first, long again_nanoseconds) {
  itimerspec times{};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(first);
  times.it_value = {seconds.count(), (first - seconds).count()};
  times.it_interval.tv_nsec = again_nanoseconds;
  timer_settime(timer, 0, &times, nullptr);
}

void on_signal(int number) {
  if (number == SIGALRM) {
    wished = true;
  } else {
    wish_to_end();
  }
}

}  // namespace

void wish_to_end() {
  wished = true;
  if (has_timer) set_timer(std::chrono::nanoseconds(1), kReminderNanoseconds);
}

bool is_end_wished() {
  if (!wished) return false;
  if (has_timer.exchange(false)) set_timer(std::chrono::nanoseconds(0), 0);
  return true;
}

EndWishes::EndWishes(std::optional<std::chrono::nanoseconds> after) {
  wished = false;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &former[i]);
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGALRM;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) << "no timer: " << strerror(errno);
  has_timer = true;
  if (after) set_timer(std::max(*after, std::chrono::nanoseconds(1)), kReminderNanoseconds);
}

EndWishes::~EndWishes() {
  has_timer = false;
  timer_delete(timer);
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former[i], nullptr);
}

}  // namespace tally::engine
