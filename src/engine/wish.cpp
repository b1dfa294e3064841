// See wish.h.
#include "engine/wish.h"

#include <signal.h>

#include <array>
#include <atomic>

#include "base/check.h"

namespace tally::engine {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

std::atomic<bool> wished{false};
std::atomic<Bell*> rung{nullptr};
std::array<struct sigaction, kSignals.size()> former;

}  // namespace

void wish_to_end() {
  wished = true;
  if (Bell* bell = rung) bell->ring();
}

EndWishes::EndWishes(Bell& bell, std::optional<std::chrono::nanoseconds> after) : bell_(bell) {
  CHECK(bell.works()) << "no timer";
  wished = false;
  rung = &bell;
  struct sigaction action {};
  action.sa_handler = [](int) { wish_to_end(); };
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &former[i]);
  if (!after) return;
  end_ = std::chrono::steady_clock::now() + *after;
  bell.ring_after(*after);
}

EndWishes::~EndWishes() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &former[i], nullptr);
  rung = nullptr;
}

bool EndWishes::is_end_wished() {
  const bool is_over = end_ && std::chrono::steady_clock::now() >= *end_;
  if (!wished && !is_over) return false;
  wished = true;
  bell_.silence();
  return true;
}

}  // namespace tally::engine
