// See area_place.h.
#include "cache/area_place.h"

#include <algorithm>

#include "translate/layout.h"

namespace tally::engine {

namespace {

using translate::kAreaSizeBytes;

constexpr uint64_t kReachBytes = (2ull << 30) - (64ull << 20);
// Kept free between an area and the module it serves, for stack and later libraries to grow.
constexpr uint64_t kGapBytes = 768ull << 20;
constexpr uint64_t kStepBytes = 32ull << 20;
constexpr uint64_t kLowestAddress = 0x10000;
constexpr uint64_t kHighestAddress = 0x7ffffffff000;
constexpr uint64_t kPageMask = 0xfff;

// How far the heap can grow until it meets an area there.
uint64_t heap_room(uint64_t area, std::optional<uint64_t> heap_begin) {
  if (!heap_begin || area + kAreaSizeBytes <= *heap_begin) return UINT64_MAX;
  return area < *heap_begin ? 0 : area - *heap_begin;
}

// Calls `consider` for each place that could do, the best first, but for the heap.
template <class Consider>
void for_each_place(TargetRange range, std::optional<uint64_t> heap_begin, Consider consider) {
  const uint64_t begin = range.begin.value() & ~kPageMask;
  const uint64_t end = (range.end.value() + kPageMask) & ~kPageMask;
  const auto consider_both = [&](uint64_t gap) {
    if (begin > gap + kAreaSizeBytes) consider(begin - gap - kAreaSizeBytes);
    consider(end + gap);
  };
  // Below the module at first, then above, farther or nearer as room allows.
  for (uint64_t gap = kGapBytes; gap <= kReachBytes; gap += kStepBytes) consider_both(gap);
  for (uint64_t gap = kGapBytes; gap > 0; gap -= kStepBytes) consider_both(gap);
  // Right in front of the heap.
  if (heap_begin && *heap_begin > end + kAreaSizeBytes) {
    consider((*heap_begin & ~kPageMask) - kAreaSizeBytes);
  }
}

}  // namespace

bool is_free(const std::vector<tracee::Mapping>& mappings, uint64_t begin, uint64_t end) {
  for (const tracee::Mapping& m : mappings) {
    if (m.range.begin.value() < end && begin < m.range.end.value()) return false;
  }
  return begin >= kLowestAddress && end <= kHighestAddress && begin < end;
}

bool reaches(uint64_t area, TargetRange range) {
  const uint64_t area_end = area + kAreaSizeBytes;
  const uint64_t low = std::min(area, range.begin.value());
  const uint64_t high = std::max(area_end, range.end.value());
  return high - low < kReachBytes;
}

std::optional<uint64_t> area_place(const std::vector<tracee::Mapping>& mappings, TargetRange range,
                                   std::optional<uint64_t> heap_begin) {
  // More than any heap can have within reach of a program.
  constexpr uint64_t kAmpleBytes = 1ull << 32;
  std::optional<uint64_t> best;
  uint64_t most_room = 0;
  for_each_place(range, heap_begin, [&](uint64_t place) {
    if (most_room >= kAmpleBytes || place >= kHighestAddress || !reaches(place, range) ||
        !is_free(mappings, place, place + kAreaSizeBytes)) {
      return;
    }
    const uint64_t room = heap_room(place, heap_begin);
    if (best && room <= most_room) return;
    best = place;
    most_room = room;
  });
  return best;
}

}  // namespace tally::engine
