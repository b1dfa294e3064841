// Sets of addresses as sorted, disjoint ranges: which memory is executable, which may change.
//
// A program with a compiler inside changes them thousands of times, mostly at one end; they stay
// short because neighbours are merged.
#pragma once

#include <algorithm>
#include <vector>

#include "base/address.h"

namespace tally::engine {

inline bool overlaps(TargetRange a, TargetRange b) {
  return a.begin < b.end && b.begin < a.end;
}

inline TargetRange intersection(TargetRange a, TargetRange b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

class RangeSet {
 public:
  void add(TargetRange range) {
    if (range.empty()) return;
    std::vector<TargetRange> result;
    for (const TargetRange& r : ranges_) {
      if (r.end < range.begin || range.end < r.begin) {
        result.push_back(r);
      } else {
        range = {std::min(r.begin, range.begin), std::max(r.end, range.end)};
      }
    }
    result.insert(std::upper_bound(
                      result.begin(), result.end(), range,
                      [](const TargetRange& a, const TargetRange& b) { return a.begin < b.begin; }),
                  range);
    ranges_ = std::move(result);
  }

  void remove(TargetRange range) {
    if (!meets(range)) return;
    std::vector<TargetRange> result;
    for (const TargetRange& r : ranges_) {
      if (!overlaps(r, range)) {
        result.push_back(r);
        continue;
      }
      if (r.begin < range.begin) result.push_back({r.begin, range.begin});
      if (range.end < r.end) result.push_back({range.end, r.end});
    }
    ranges_ = std::move(result);
  }

  bool contains(TargetAddr address) const { return at(address) != nullptr; }
  bool meets(TargetRange range) const {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [&](const TargetRange& r) { return overlaps(r, range); });
  }
  // The range that holds the address; nullptr when none does.
  const TargetRange* at(TargetAddr address) const {
    auto next = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                 [](TargetAddr a, const TargetRange& r) { return a < r.begin; });
    return next != ranges_.begin() && (next - 1)->contains(address) ? &*(next - 1) : nullptr;
  }

  bool empty() const { return ranges_.empty(); }
  auto begin() const { return ranges_.begin(); }
  auto end() const { return ranges_.end(); }

 private:
  std::vector<TargetRange> ranges_;
};

}  // namespace tally::engine
