// See interruptions.h.
#include "ledger/interruptions.h"

#include <algorithm>

namespace tally::engine {

std::optional<Interruption> Interruptions::push(uint32_t slot, const Interruption& interruption) {
  std::optional<Interruption> stale = take(slot, interruption.context);
  by_slot_[slot].push_back(interruption);
  return stale;
}

const Interruption* Interruptions::find(uint32_t slot, uint64_t context) const {
  auto it = by_slot_.find(slot);
  if (it == by_slot_.end()) return nullptr;
  for (size_t i = it->second.size(); i-- > 0;) {
    if (it->second[i].context == context) return &it->second[i];
  }
  return nullptr;
}

const Interruption* Interruptions::innermost(uint32_t slot, uint64_t stack_pointer) const {
  const auto it = by_slot_.find(slot);
  if (it == by_slot_.end()) return nullptr;
  const Interruption* nearest = nullptr;
  for (const Interruption& record : it->second) {
    if (record.context <= stack_pointer) continue;
    if (nearest == nullptr || record.context < nearest->context) nearest = &record;
  }
  return nearest;
}

std::optional<Interruption> Interruptions::take(uint32_t slot, uint64_t context) {
  const Interruption* found = find(slot, context);
  if (found == nullptr) return std::nullopt;
  Interruption result = *found;
  std::vector<Interruption>& records = by_slot_[slot];
  records.erase(records.begin() + (found - records.data()));
  return result;
}

void Interruptions::inherit(uint32_t slot, uint32_t parent) {
  auto it = by_slot_.find(parent);
  if (it != by_slot_.end()) by_slot_[slot] = std::vector<Interruption>(it->second);
}

bool Interruptions::is_in_restorer(TargetAddr address) const {
  constexpr uint64_t kRestorerBytes = 16;
  auto it = restorers_.upper_bound(address.value());
  return it != restorers_.begin() && address.value() - *std::prev(it) < kRestorerBytes;
}

void Interruptions::inherit_from(const Interruptions& parent, uint32_t parent_slot, uint32_t slot) {
  restorers_ = parent.restorers_;
  auto it = parent.by_slot_.find(parent_slot);
  if (it == parent.by_slot_.end()) return;
  std::vector<Interruption>& records = by_slot_[slot];
  records = it->second;
  for (Interruption& record : records) {
    record.inherited = true;
    record.resume = CacheAddr();
    record.restart = CacheAddr();
  }
}

}  // namespace tally::engine
