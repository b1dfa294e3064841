// See known_targets.h.
#include "cache/known_targets.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <bit>

#include "base/check.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

void KnownTargets::begin(uint8_t* tables, uint64_t code_bytes) {
  // Some more places than targets in the programs measured; a page at least.
  constexpr uint64_t kBytesForPlace = 2048;
  constexpr uint32_t kBitsMin = 8;
  const auto bits = static_cast<uint32_t>(std::bit_width(code_bytes / kBytesForPlace));
  const uint32_t chosen = std::clamp(bits, kBitsMin, tables::kKnownBitsMax);
  tables_ = tables;
  shift_ = 32 - chosen;
  places_.assign(size_t{1} << chosen, {});
  memcpy(tables + tables::kKnownShift, &shift_, sizeof shift_);
}

void KnownTargets::lead(size_t index, CacheAddr code) {
  auto* entry = reinterpret_cast<uint64_t*>(tables_ + tables::kKnown) + 2 * index;
  std::atomic_ref<uint64_t>(entry[1]).store(code.value(), std::memory_order_release);
}

void KnownTargets::add(TargetAddr target, BlockRef to, CacheAddr code) {
  CHECK(to.insn == 0) << "the middle of a block as a known target";
  const size_t first = known_hash(target.value()) >> shift_;
  for (const size_t index : {first, first ^ 1}) {
    Place& place = places_[index];
    if (place.target == TargetAddr()) {
      place.target = target;
      auto* entry = reinterpret_cast<uint64_t*>(tables_ + tables::kKnown) + 2 * index;
      std::atomic_ref<uint64_t>(entry[0]).store(target.value(), std::memory_order_release);
    }
    if (place.target != target) continue;
    place.to = to;
    return lead(index, code);
  }
}

void KnownTargets::for_each(const std::function<void(BlockRef)>& visit) const {
  for (const Place& place : places_) {
    if (place.to.valid()) visit(place.to);
  }
}

void KnownTargets::forget_if(const std::function<bool(TargetAddr target, BlockRef to)>& is_one) {
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (!place.to.valid() || !is_one(place.target, place.to)) continue;
    lead(i, CacheAddr());
    place.to = {};
  }
}

void KnownTargets::move(const std::function<BlockRef(BlockRef)>& newest,
                        const std::function<CacheAddr(BlockRef)>& code_of) {
  for (size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (!place.to.valid()) continue;
    const BlockRef to = newest(place.to);
    if (to == place.to) continue;
    place.to = to;
    lead(i, code_of(to));
  }
}

}  // namespace tally::engine
