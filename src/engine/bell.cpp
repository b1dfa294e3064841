// See bell.h.
#include "engine/bell.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace tally::engine {
namespace {

constexpr long kReminderNanoseconds = 500'000;

int bell_signal() {
  return SIGRTMAX - 1;  // nobody else's
}

void set_timer(timer_t timer, std::chrono::nanoseconds first, long again_nanoseconds) {
  itimerspec times{};
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(first);
  times.it_value = {seconds.count(), (first - seconds).count()};
  times.it_interval.tv_nsec = again_nanoseconds;
  timer_settime(timer, 0, &times, nullptr);
}

void unblock() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, bell_signal());
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace

Bell::Bell() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  sigaction(bell_signal(), &action, &former_);
  unblock();
  sigevent event{};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = bell_signal();
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  works_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
}

Bell::~Bell() {
  if (works_.exchange(false)) timer_delete(timer_);
  sigaction(bell_signal(), &former_, nullptr);
}

void Bell::ring() {
  ring_after(std::chrono::nanoseconds(1));
}

void Bell::ring_after(std::chrono::nanoseconds delay) {
  rings_ = true;
  if (works_) set_timer(timer_, std::max(delay, std::chrono::nanoseconds(1)), kReminderNanoseconds);
}

void Bell::silence() {
  if (works_ && rings_.exchange(false)) set_timer(timer_, std::chrono::nanoseconds(0), 0);
}

}  // namespace tally::engine
