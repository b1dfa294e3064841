// What threads have noted of indirect branches.  See known_targets.h.
#include <string.h>

#include <algorithm>

#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

namespace {

struct Note {
  uint64_t code = 0;
  uint64_t site = 0;
};
static_assert(sizeof(Note) == tcb::kNoteBytes);

}  // namespace

// Where visits of the block begin; null where its code does not tell it from others: a jump to the
// block that lies next has none.  Into a loop that a register counts they must go by its door.
CacheAddr CodeCache::known_way(BlockRef to) const {
  if (!has_code(to) || units_[to.unit]->plan.induction_of(to.block) != nullptr) return CacheAddr();
  const CacheAddr code = units_[to.unit]->label(to.block);
  return block_beginning_at(code) == to ? code : CacheAddr();
}

void CodeCache::make_known(TargetAddr target, BlockRef to) {
  const Unit& unit = *units_[to.unit];
  const bool lasts = !unit.replaceable && !unit.checked && !unit.dead;
  if (!optimizations_.has(Optimization::kNotes) || kept_ != nullptr || !lasts || to.insn != 0 ||
      placement_ == PlacementKind::kNone) {
    return;
  }
  if (const CacheAddr code = known_way(to); code != CacheAddr()) {
    known_targets_.add(target, to, code);
  }
}

BlockRef CodeCache::block_beginning_at(CacheAddr code) const {
  const CodeRecord* record = record_at(code);
  if (record == nullptr || !record->in_unit()) return {};
  const UnitCode& unit = units_[record->index]->code;
  const uint32_t offset = unit.offset_of(code);
  const std::optional<uint32_t> block = unit.block_at(offset);
  if (!block || unit.blocks[*block].label != offset) return {};
  return {record->index, *block};
}

// Its code tells it from all others (known_way).
BlockRef CodeCache::visited_block(CacheAddr code) const {
  const BlockRef block = block_beginning_at(code);
  CHECK(block.valid()) << "a visit of " << code.value();
  return block;
}

// The pair of a visit that has been made already.  It has no stub if no way shall lead there any
// more: its target has become another's meanwhile, or the program has ended.
uint32_t CodeCache::pair_of_visit(uint32_t site_id, BlockRef to, AfterVisits after) {
  SiteState& state = sites_[site_id];
  const auto find = [&](bool cut) {
    const auto is_it = [&](const Pair& pair) { return pair.to == to && pair.cut == cut; };
    return static_cast<uint32_t>(std::ranges::find_if(state.pairs, is_it) - state.pairs.begin());
  };
  if (const uint32_t index = find(false); index < state.pairs.size()) return index;
  const TargetAddr target = address_of(to);
  // Nobody comes by a unit that was translated again: this visit was its last.
  const bool goes_on = after == AfterVisits::kGoesOn && !units_[state.unit]->renewed_by;
  if (goes_on && !units_[to.unit]->dead && check_room()) {
    const auto found = blocks_.find(target.value());
    if (found && *found == pack(to)) {
      if (!units_[state.unit]->dead) join_table(site_id, target);
      join_pair(site_id, target, to);
      if (const uint32_t index = find(false); index < state.pairs.size()) return index;
    }
  }
  if (const uint32_t index = find(true); index < state.pairs.size()) return index;
  Pair pair;
  pair.target = target;
  pair.to = to;
  pair.counter = allocate_counter(expected_of(to));
  pair.cut = true;
  pair_order_.emplace_back(site_id, static_cast<uint32_t>(state.pairs.size()));
  state.pairs.push_back(pair);
  return static_cast<uint32_t>(state.pairs.size() - 1);
}

void CodeCache::take_notes(uint32_t slot, AfterVisits after) {
  uint8_t* memory = region_.thread_memory(slot);
  uint32_t count = 0;
  memcpy(&count, memory + tcb::kNoteCount, sizeof count);
  if (count == 0) return;
  CHECK(count <= tcb::kNotesMax) << "a thread has noted " << count << " visits";
  for (uint32_t i = 0; i < count; ++i) {
    Note note;
    memcpy(&note, memory + tcb::kNotes + i * tcb::kNoteBytes, sizeof note);
    CHECK(note.site < sites_.size()) << "a visit from nowhere";
    const auto site = static_cast<uint32_t>(note.site);
    const uint32_t index = pair_of_visit(site, visited_block(CacheAddr(note.code)), after);
    uint8_t* counter = memory + counter_offset(sites_[site].pairs[index].counter);
    uint64_t value = 0;
    memcpy(&value, counter, sizeof value);
    ++value;
    memcpy(counter, &value, sizeof value);
  }
  stats_.noted += count;
  count = 0;
  memcpy(memory + tcb::kNoteCount, &count, sizeof count);
}

}  // namespace tally::engine
