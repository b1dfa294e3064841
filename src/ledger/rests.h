// How often indirect branches led where that is not counted (cache/rest.cpp).
//
// A call through a pointer led there as often as it was made, less what its other targets counted.
// It was made as often as its block was run to its end, but for threads that ended between the call
// and the callee.  Of a jump, the way there is an edge of its unit's graph like any other.
//
// When a unit is solved, its branches' are known.
#pragma once

#include <span>
#include <vector>

#include "cache/edge_weights.h"
#include "ledger/unit_flow.h"
#include "profile/model.h"

namespace tally::engine {

class Rests {
 public:
  // All must outlive this; `counters` as in UnitFlows.
  Rests(const Translated& translated, const LedgerBooks& ledger, const UnitFlows& flows,
        std::span<const uint64_t> counters)
      : translated_(translated),
        ledger_(ledger),
        flows_(flows),
        counters_(counters),
        times_(translated.sites().size(), 0) {}

  // Takes them from a unit's solution; `edge`: a jump's, if it has one (UnitEquations::rest).  What
  // cannot be is an issue.
  void settle(const Unit& unit, const placement::Solution& solution,
              std::optional<placement::EdgeId> edge, std::vector<profile::Issue>& issues);
  // Of a pair, whether it is counted or its site's unit has been settled.
  uint64_t times(const SiteState& site, const Pair& pair) const {
    return pair.rest ? times_[number(site)] : counters_[pair.counter];
  }
  // Where a settled unit's calls through pointers have led most, and its jump if that is all it is.
  std::vector<LedMost> led_most(const Unit& unit) const;

 private:
  size_t number(const SiteState& site) const {
    return static_cast<size_t>(&site - translated_.sites().data());
  }
  int64_t of_call(const Unit& unit, const SiteState& site,
                  const placement::Solution& solution) const;

  const Translated& translated_;
  const LedgerBooks& ledger_;
  const UnitFlows& flows_;
  std::span<const uint64_t> counters_;
  std::vector<uint64_t> times_;  // by site
};

}  // namespace tally::engine
