// Units that leave it to their callers to say how often they were entered (cache/entry_callers.h).
//
// A direct branch to the entry of such a unit adds to its entries what the branch's block or edge
// came to, but for what has counters of its own (`LinkPair`): so all that branch there are solved
// first.  Which unit that is follows from the address alone: there is but one of them at each, and
// branches to any other that begins there have counters.
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
  // The unit that direct branches to this address enter, and that leaves it to them to say how
  // often; nullptr if it is none.
  const Unit* at(const Module& module, LinkAddr address) const {
    if (units_.empty()) return nullptr;
    const uint32_t* found = by_entry_.find(module.key_of(address));
    return found == nullptr ? nullptr : &translated_->unit(*found);
  }
  struct Order {
    std::vector<uint32_t> units;   // callers in front of those that they call
    std::vector<uint32_t> circle;  // that would have to be solved before themselves: a bad record
  };
  Order callers_first() const;

 private:
  const Translated* translated_;
  FlatMap<uint32_t> by_entry_;
  std::vector<uint32_t> units_;
};

}  // namespace tally::engine
