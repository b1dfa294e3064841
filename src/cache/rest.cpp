// Where an indirect branch leads most often has no counter.
//
// Problem.  Each target of an indirect branch has a counter, though how often the branch was taken
// is known from its block.  Most branches have one target that all others are rare beside, and
// interpreters, and programs that call libraries, have many such branches.
//
// Idea.  One target of each site is not counted.  It has what is left of the block's count:
//
//     block of the call  100      f  not counted: 97
//                                 g  2
//                                 h  1
//
// Which one it is may be a guess: the first that shows up, or that of which an earlier run says
// that it was the most frequent.  Any choice is exact.
//
// A call's block has a count whatever it calls.  A jump's follows from what it leads to, so there
// it is done only where the block is all that is known of its procedure, and its callers say how
// often that was entered (entry_callers.h): slots of a linkage table.
//
// How often the target was entered by it is then known when the branch's unit is solved.  A target
// that leaves its entries to callers must have a higher rank, as for direct branches.
//
// Not handled: code that may be replaced; calls that may not come back as they should; runs with
// kept counters.
#include <algorithm>

#include "cache/code_cache.h"

namespace tally::engine {

// Whether the block is entered and left by nothing but its procedure's entry and this branch.
bool CodeCache::is_alone(const SiteState& state) const {
  const Unit& unit = *units_[state.unit];
  const uint32_t block = state.site.block;
  return unit.left_to_callers() && unit.procedure.entry_block == block && !state.site.head &&
         std::ranges::none_of(unit.procedure.edges, [&](const cfg::Edge& edge) {
           return edge.from == block || edge.to == block;
         });
}

bool CodeCache::may_be_rest(const SiteState& state, BlockRef to) const {
  if (!optimizations_.has(Optimization::kRest) || kept_ != nullptr || state.rest) return false;
  const Unit& from = *units_[state.unit];
  const Unit& target = *units_[to.unit];
  const bool lasting = !from.replaceable && !from.open_calls && !from.checked && !from.dead &&
                       !target.replaceable && !target.counts_branches;
  if (!lasting || !is_entry(to)) return false;
  if (target.left_to_callers() && from.rank >= target.rank) return false;
  return state.site.call || is_alone(state);
}

// Of its site, in an earlier run.
bool CodeCache::is_most_led(const Recollection::Led& led) const {
  const auto found = most_led_from_.find(key_of_led(led.module, led.block));
  return found != most_led_from_.end() && recollection_.led[found->second] == led;
}

}  // namespace tally::engine
