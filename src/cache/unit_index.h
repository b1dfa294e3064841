// Units by the code they were made from: which of them have a part of a range?
//
// Problem.  Every miss asks this twice.  Ranges of units overlap and differ in size by a factor of
// a thousand, so that in an order by their beginnings the walk back to the first that may reach an
// address passes hundreds of small ones (in cc1 it was 2 % of all the time).
//
// Idea.  A list for each page of code, which holds the few units that have a part of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/address.h"

namespace tally::engine {

class UnitIndex {
 public:
  void add(uint32_t module, LinkRange range, uint32_t unit) {
    for_each_page(module, range, [&](uint64_t page) {
      pages_[page].push_back({range, unit, module});
    });
  }

  void remove(uint32_t module, LinkRange range, uint32_t unit) {
    for_each_page(module, range, [&](uint64_t page) {
      const auto found = pages_.find(page);
      if (found == pages_.end()) return;
      std::erase_if(found->second, [&](const Entry& entry) { return entry.unit == unit; });
      if (found->second.empty()) pages_.erase(found);
    });
  }

  // By the beginnings of their ranges, the older first among equals.
  std::vector<uint32_t> meeting(uint32_t module, LinkRange range) const {
    std::vector<Entry> found;
    for_each_page(module, range, [&](uint64_t page) {
      const auto list = pages_.find(page);
      if (list == pages_.end()) return;
      for (const Entry& entry : list->second) {
        if (entry.module == module && entry.range.begin < range.end &&
            range.begin < entry.range.end) {
          found.push_back(entry);
        }
      }
    });
    std::ranges::sort(found, {},
                      [](const Entry& entry) { return std::tuple(entry.range.begin, entry.unit); });
    std::vector<uint32_t> units;
    for (const Entry& entry : found) {
      if (units.empty() || units.back() != entry.unit) units.push_back(entry.unit);
    }
    return units;
  }

 private:
  struct Entry {
    LinkRange range;
    uint32_t unit = 0;
    uint32_t module = 0;
  };

  template <class Visit>
  static void for_each_page(uint32_t module, LinkRange range, Visit visit) {
    constexpr unsigned kPageBits = 12;
    constexpr unsigned kModuleShift = 64 - kPageBits;  // pages of thousands of modules may mix
    if (range.empty()) return;
    const uint64_t last = (range.end.value() - 1) >> kPageBits;
    for (uint64_t page = range.begin.value() >> kPageBits; page <= last; ++page) {
      visit(page | static_cast<uint64_t>(module) << kModuleShift);
    }
  }

  std::unordered_map<uint64_t, std::vector<Entry>> pages_;
};

}  // namespace tally::engine
