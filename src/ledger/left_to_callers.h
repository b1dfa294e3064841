// Units that leave it to their callers to say how often they were entered (cache/entry_callers.h).
//
// A direct branch to the entry of such a unit adds to its entries what the branch's block or edge
// came to, but for what has counters of its own (`LinkPair`): that is all of it if the branch's
// unit is of the same rank or a higher one, so units can be solved by rising rank.  Which unit it
// is follows from the address alone: there is but one of them at each, and branches to any other
// that begins there have counters.
#pragma once

#include <cstdint>
#include <vector>

#include "base/flat_map.h"
#include "cache/translated.h"

namespace tally::engine {

class LeftToCallers {
 public:
  explicit LeftToCallers(const Translated& translated);

  bool any() const { return !units_.empty(); }
  // The unit whose entries a direct branch of `from` to this address counts for; nullptr if there
  // is none, or all such branches of this unit have counters.
  const Unit* entered_by(const Unit& from, LinkAddr target) const {
    if (units_.empty() || from.replaceable) return nullptr;
    const uint32_t* found = by_entry_.find(from.module->key_of(target));
    if (found == nullptr) return nullptr;
    const Unit& to = translated_->unit(*found);
    return from.rank < to.rank ? &to : nullptr;
  }
  // By rising rank: callers in front of those whose entries they count for.
  const std::vector<uint32_t>& units() const { return units_; }

 private:
  const Translated* translated_;
  FlatMap<uint32_t> by_entry_;
  std::vector<uint32_t> units_;
};

}  // namespace tally::engine
