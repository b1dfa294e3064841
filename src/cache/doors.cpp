// Loops that a register counts (inductions.h), as far as the code cache goes: which units may have
// them, and the ways in that are no edges of theirs.
#include "cache/code_cache.h"
#include "cache/inductions.h"

namespace tally::engine {

using namespace translate;

// Code that may be replaced is left in the middle of anything; kept counters must be right then.
bool CodeCache::may_induce(const Unit& unit) const {
  return optimizations_.has(Optimization::kInduction) && kept_ == nullptr && !unit.replaceable &&
         !unit.checked;
}

// From a plan whose counters have their numbers.
void CodeCache::take_inductions(Unit& unit) {
  if (!may_induce(unit)) unit.plan.inductions.clear();
  stats_.induced += unit.plan.inductions.size();
  for (const Plan::Induction& induction : unit.plan.inductions) {
    if (unit.plan.block_counter[induction.block] == kUnnumbered) {
      number_counter(unit, EmitRequest::Counts::kBlock, induction.block);
    }
    const auto counter = static_cast<uint32_t>(unit.plan.block_counter[induction.block]);
    if (counter >= induced_.size()) induced_.resize(counter + 1, false);
    induced_[counter] = true;
    induced_steps_.emplace(counter, induction.step);
  }
}

// Where control enters that comes from nowhere inside the unit.
CacheAddr CodeCache::way_into(BlockRef ref) {
  const Unit& unit = *units_[ref.unit];
  const Plan::Induction* induction = unit.plan.induction_of(ref.block);
  return induction == nullptr ? unit.entry_of(ref) : door_to(ref, *induction).entry;
}

const Door& CodeCache::door_to(BlockRef ref, const Plan::Induction& induction) {
  const auto before = std::ranges::find(doors_, ref, &Door::to);
  if (before != doors_.end()) return *before;
  const Unit& unit = *units_[ref.unit];
  const CodeRecord record{CacheAddr(), CodeRecord::Kind::kDoor,
                          static_cast<uint32_t>(doors_.size()), 0};
  const auto counter = static_cast<uint32_t>(unit.plan.block_counter[ref.block]);
  const Door door = emit_piece(*unit.area, record, [&](auto& as) {
    Door made;
    made.to = ref;
    made.entry = as.here();
    const CacheAddr begin(as.here().value() - as.offset());
    made.entered =
        begin + emit_crossing(as, Crossing::kEnters, counter, induction.reg, flags_at(ref));
    as.jmp_anywhere(unit.entry_of(ref).value());
    made.end = as.here();
    return made;
  });
  doors_.push_back(door);
  return doors_.back();
}

}  // namespace tally::engine
