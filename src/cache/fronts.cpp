// Stubs in front of the blocks that they lead to.
//
// A unit leaves room in front of blocks that an indirect jump of its own leads to often, by an
// earlier run's counts or by this one's (translate::Front), and in front of its entry, if it runs
// often and an earlier run has come there by an indirect branch.  The stub of that branch's pair
// goes there instead of among the pieces.  What does not fit any more lies among them as ever.
#include "base/mix.h"
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
  const uint32_t entry = procedure.entry_block;
  const bool is_busy = !unit.busy_blocks.empty() && unit.busy_blocks[entry];
  if (is_busy && led_most_to(*unit.module, procedure.entry) != nullptr) {
    unit.led_from.resize(procedure.blocks.size(), EmitRequest::kNotLed);
    if (unit.led_from[entry] == EmitRequest::kNotLed) unit.led_from[entry] = Front::kElsewhere;
  }
  request.led_from = unit.led_from;
}

uint64_t CodeCache::key_of_led(uint32_t module, uint64_t address) {
  return mix(mix(0, module), address);
}

// Those that led there most are the last, and so is where a branch led most (rest.cpp).
void CodeCache::note_led() {
  for (uint32_t i = 0; i < recollection_.led.size(); ++i) {
    const Recollection::Led& led = recollection_.led[i];
    most_led_from_[key_of_led(led.module, led.block)] = i;
    if (!optimizations_.has(Optimization::kFronts)) continue;
    most_led_[key_of_led(led.to_module, led.to)] = i;
  }
}

// The branch that has led to an address most in an earlier run, nullptr if none has.
const Recollection::Led* CodeCache::led_most_to(const Module& module, LinkAddr address) const {
  const auto to = std::ranges::find(recalled_, &module);
  if (to == recalled_.end()) return nullptr;
  const auto number = static_cast<uint32_t>(to - recalled_.begin());
  const auto found = most_led_.find(key_of_led(number, address.value()));
  return found == most_led_.end() ? nullptr : &recollection_.led[found->second];
}

bool CodeCache::leads_most(const SiteState& state, BlockRef to) const {
  const Unit& unit = *units_[state.unit];
  const Unit& other = *units_[to.unit];
  const Recollection::Led* led = led_most_to(*other.module, other.address_of(to.block));
  return led != nullptr && recalled_[led->module] == unit.module && unit.area == other.area &&
         LinkAddr(led->block) == unit.address_of(state.site.block);
}

// The room for the stub of a pair, if it is there and free.
Front* CodeCache::front_for(const SiteState& state, const Pair& pair) {
  if (pair.to.insn != 0) return nullptr;
  for (Front& front : units_[pair.to.unit]->code.fronts) {
    if (front.block != pair.to.block || front.taken) continue;
    const bool is_inside = pair.to.unit == state.unit && front.from == state.site.block;
    const bool is_for_it = front.from == Front::kElsewhere ? leads_most(state, pair.to) : is_inside;
    return is_for_it ? &front : nullptr;
  }
  return nullptr;
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
