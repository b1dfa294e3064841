// See thread_totals.h.
#include "ledger/thread_totals.h"

#include <fmt/format.h>
#include <cstdlib>

#include "cache/inductions.h"
#include "profile/counts.h"

namespace tally::engine {

void ThreadTotals::begin(uint32_t slot, pid_t tid, const char* begun) {
  if (slot == slots_.size()) {
    slots_.emplace_back();
  } else {
    weights_.update();
    settle(slots_[slot], slot);
  }
  Slot& now = slots_[slot];
  now.tid = tid;
  now.open = true;
  now.row = rows_.size();
  if (rows_.size() > kRowsMax) {
    now.row = kRowsMax;
    ++others_;
    return;
  }
  profile::Thread row;
  row.tid = static_cast<uint32_t>(tid);
  row.begun = begun;
  rows_.push_back(row);
}

void ThreadTotals::name(uint32_t slot) {
  rows_[slots_[slot].row].name = tracee::thread_name(slots_[slot].tid);
}

void ThreadTotals::end(uint32_t slot, const char* ended, const std::string& name) {
  Slot& now = slots_[slot];
  now.open = false;
  rows_[now.row].ended = ended;
  if (!name.empty()) rows_[now.row].name = name;
}

// What the slot has gained since its thread got it is the thread's.
void ThreadTotals::settle(Slot& slot, uint32_t number) {
  const uint64_t now = counted(number);
  rows_[slot.row].instructions += now - slot.before + booked(number);
  slot.before = now;
}

uint64_t ThreadTotals::counted(uint32_t slot) const {
  uint64_t sum = 0;
  const std::vector<uint64_t>& weights = weights_.of_counters();
  const Translated& cache = weights_.cache();
  region_.for_each_counter(slot, weights.size(), [&](size_t counter, uint64_t value) {
    sum += runs_counted(cache, counter, value).value_or(0) * weights[counter];
  });
  return sum;
}

uint64_t ThreadTotals::booked(uint32_t slot) {
  uint64_t sum = 0;
  for (const auto& [key, times] : ledger_.take_bookings(slot)) {
    sum += weights_.of_booking(key, times);
  }
  return sum;
}

void ThreadTotals::finish(size_t counters,
                          const std::function<void(size_t counter, uint64_t value)>& add) {
  // One thread executed all there is.  Its total is found all the same where Tally is tested.
  if (rows_.size() > 1 || std::getenv("TALLY_CHECK") != nullptr) weights_.update();
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    Slot& last = slots_[slot];
    region_.for_each_counter(slot, counters, add);
    if (!weights_.of_counters().empty()) settle(last, slot);
    if (last.open) rows_[last.row].ended = "vanished";
  }
  if (weights_.of_counters().empty()) return;
  // Frames from before a fork belong to the thread that the process began with.
  rows_.front().instructions += booked(Ledger::kInheritedSlot);
}

void ThreadTotals::name_shared_row() {
  if (others_ == 0) return;
  profile::Thread& shared = rows_[kRowsMax];
  shared.tid = 0;
  shared.name = fmt::format("{} threads more", others_ + 1);
  shared.begun = shared.ended = "various";
}

void ThreadTotals::add_rows(profile::Profile& profile, const std::string& begun) {
  rows_.front().begun = begun;
  name_shared_row();
  uint64_t total = 0;
  for (const profile::Block& block : profile.blocks) {
    total += static_cast<uint64_t>(profile::instructions_executed(block));
  }
  if (weights_.of_counters().empty()) rows_.front().instructions = total;
  uint64_t sum = 0;
  bool impossible = false;
  for (profile::Thread& row : rows_) {
    // Modulo 2^64 a negative total is a huge one; what is no number of instructions is not shown.
    if (row.instructions > total) {
      impossible = true;
      row.instructions = 0;
    }
    sum += row.instructions;
  }
  if (rows_.size() > 1 && (impossible || ledger_.stacks_were_switched())) {
    profile.issues.push_back({"threads",
                              "the program switches stacks, perhaps between threads; the totals of "
                              "single threads are not exact, their sum is",
                              rows_.size()});
  }
  if (sum != total) {
    profile::Thread rest;
    rest.name = "not attributed";
    rest.begun = rest.ended = "unknown";
    rest.instructions = sum < total ? total - sum : 0;
    profile.issues.push_back({"threads",
                              sum < total ? "instructions that no thread's counters explain"
                                          : "instructions that several threads claim",
                              sum < total ? total - sum : sum - total});
    rows_.push_back(rest);
  }
  profile.threads = std::move(rows_);
}

}  // namespace tally::engine
