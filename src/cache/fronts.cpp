// Stubs in front of the blocks that they lead to.
//
// A unit leaves room in front of blocks that an indirect jump of its own leads to often, by an
// earlier run's counts or by this one's (translate::Front).  The stub of that jump's pair goes
// there instead of among the pieces.  What does not fit any more lies among them as ever.
#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

// Which blocks of a unit are to have room in front of them.
void CodeCache::set_led(Unit& unit, const cfg::Procedure& procedure, EmitRequest& request) const {
  if (!optimizations_.has(Optimization::kFronts)) return;
  request.indexed_above = static_cast<uint32_t>(indexed_above_pairs_);
  if (indexes_always()) {
    unit.led_from.assign(procedure.blocks.size(), EmitRequest::kNotLed);
    for (const cfg::Edge& edge : procedure.edges) {
      if (edge.kind == cfg::EdgeKind::kTableJump) unit.led_from[edge.to] = edge.from;
    }
  }
  request.led_from = unit.led_from;
}

// The room for the stub of a pair, if it is there and free.
Front* CodeCache::front_for(const SiteState& state, const Pair& pair) {
  if (pair.to.unit != state.unit || pair.to.insn != 0) return nullptr;
  std::vector<Front>& fronts = units_[state.unit]->code.fronts;
  const auto front = std::ranges::find_if(fronts, [&](const Front& one) {
    return one.block == pair.to.block && one.from == state.site.block && !one.taken;
  });
  return front == fronts.end() ? nullptr : &*front;
}

// What is there now, in place of nothing.
void CodeCache::take_front(Front& front, const Area& area, CodeRecord record) {
  front.taken = true;
  record.begin = front.entry;
  auto& records = records_[record_index(area, front.entry)];
  const auto behind = std::ranges::upper_bound(records, front.entry, {}, &CodeRecord::begin);
  CHECK(behind != records.begin()) << "a front without a record";
  *(behind - 1) = record;
}

}  // namespace tally::engine
