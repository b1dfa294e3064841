// Jumps through tables that the program's own index leads through.
//
// The head of a block's tail (translate::IndexHead) jumps over room for a dispatch.  Once a site
// has many targets, a table of 256 pointers is made for it: an index whose entry in the program's
// table is a target that has been seen leads to the stub for it, all others to the tail in the
// unit.
//
// Which table the program has is guessed, from an instruction of the procedure that loads an
// address into the register: it is the one that has most of the targets.  A wrong guess, or a table
// that changes, costs time only, since every stub compares where the program's own instructions
// lead.
//
// Only targets in the same unit have stubs, so they live as long as the unit.
#include <string.h>

#include <algorithm>
#include <bit>

#include "cache/code_cache.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

namespace {

constexpr uint32_t kEntries = 256;

// As many as can be read of a table's first entries, as targets.
std::vector<TargetAddr> read_table(const Module& module, const isa::IndexedJump& jump,
                                   LinkAddr table) {
  std::vector<TargetAddr> targets;
  const uint32_t entry_bytes = jump.holds_distances ? sizeof(int32_t) : sizeof(uint64_t);
  std::vector<uint8_t> bytes(size_t{kEntries} * entry_bytes);
  // It may lie at the end of what is mapped.
  while (!module.view.read_data(table, bytes.data(), bytes.size())) {
    bytes.resize(bytes.size() / 2);
    if (bytes.size() < entry_bytes) return targets;
  }
  for (size_t at = 0; at < bytes.size(); at += entry_bytes) {
    if (jump.holds_distances) {
      int32_t distance = 0;
      memcpy(&distance, bytes.data() + at, sizeof distance);
      targets.push_back(module.to_target(table + static_cast<uint64_t>(int64_t{distance})));
    } else {
      uint64_t pointer = 0;
      memcpy(&pointer, bytes.data() + at, sizeof pointer);
      targets.push_back(TargetAddr(pointer));
    }
  }
  return targets;
}

}  // namespace

// Where the program's table may be.
std::vector<LinkAddr> CodeCache::tables_of(const Unit& unit, const isa::IndexedJump& jump) const {
  const auto displacement = static_cast<uint64_t>(int64_t{jump.displacement});
  if (!jump.has_base) return {unit.module->to_link(TargetAddr(displacement))};
  std::vector<LinkAddr> found;
  for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) {
    const cfg::Block& block = unit.procedure.blocks[b];
    LinkAddr at = unit.address_of(b);
    const std::span<const uint8_t> code = unit.module->view.code_at(at);
    if (code.size() < block.size_bytes) continue;
    uint32_t offset = 0;
    for (uint32_t i = block.first_insn; i < block.first_insn + block.insn_count; ++i) {
      const uint8_t size = unit.insn_sizes[i];
      const auto loaded = isa::loads_address(code.subspan(offset, size), at.value(), jump.base);
      if (loaded) found.push_back(LinkAddr(*loaded) + displacement);
      offset += size;
      at = at + size;
    }
  }
  std::ranges::sort(found);
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// The entries of the table that has most of a site's targets; none if it has less than half of
// them.
std::vector<TargetAddr> CodeCache::guess_table(const SiteState& state) const {
  const Unit& unit = *units_[state.unit];
  std::vector<TargetAddr> wanted;
  for (const Pair& pair : state.pairs) {
    if (!pair.cut && pair.to.unit == state.unit) wanted.push_back(pair.target);
  }
  std::vector<TargetAddr> best;
  size_t best_hits = wanted.size() / 2;
  for (const LinkAddr table : tables_of(unit, state.site.head->jump)) {
    std::vector<TargetAddr> targets = read_table(*unit.module, state.site.head->jump, table);
    const auto hits = static_cast<size_t>(std::ranges::count_if(wanted, [&](TargetAddr target) {
      return std::ranges::find(targets, target) != targets.end();
    }));
    if (hits <= best_hits) continue;
    best_hits = hits;
    best = std::move(targets);
  }
  return best;
}

CacheAddr CodeCache::copy_in_tail(const SiteState& state, uint32_t insn) const {
  const Unit& unit = *units_[state.unit];
  return unit.code.address(unit.code.offset_of_insn(state.site.block, insn));
}

CacheAddr CodeCache::tail_of(const SiteState& state) const {
  return copy_in_tail(state, state.site.head->jump.first);
}

// Where an index leads that is of no use.
CacheAddr CodeCache::make_fallback(SiteState& state, uint32_t site_id) {
  const isa::IndexedJump& jump = state.site.head->jump;
  const CacheAddr tail = tail_of(state);
  // Unmasked, all registers are the program's there.
  if (!jump.masked) return tail;
  const CacheAddr behind = copy_in_tail(state, jump.first + 1u);
  const std::span<const uint8_t> first(region_.code(tail), static_cast<size_t>(behind - tail));
  const CodeRecord record{CacheAddr(), CodeRecord::Kind::kIndexed, site_id, 0};
  const IndexedStub stub = emit_piece(*units_[state.unit]->area, record, [&](auto& as) {
    return emit_index_fallback(as, first, behind);
  });
  state.by_index->stubs.push_back(stub);
  return stub.entry;
}

bool CodeCache::make_index(SiteState& state, uint32_t site_id) {
  IndexTable& table = *state.by_index;
  if (next_table_ + tables::kHashTableBytes > tables::kHashTablesEnd) return false;
  table.targets = guess_table(state);
  if (table.targets.empty()) return false;
  table.table_offset = next_table_;
  next_table_ += tables::kHashTableBytes;
  table.fallback = make_fallback(state, site_id);
  for (uint32_t i = 0; i < kEntries; ++i) {
    set_table_head(table.table_offset, static_cast<uint8_t>(i), table.fallback);
  }
  const CacheAddr begin = state.site.head->field + 4;
  isa::Assembler as(code_at(begin), IndexHead::kRoomBytes, begin);
  emit_index_dispatch(as, state.site.head->jump, region_.tables_base() + table.table_offset);
  CHECK(!as.overflowed()) << "a dispatch longer than its room";
  table.state = IndexTable::State::kLeads;
  stats_.indexed += 1;
  return true;
}

void CodeCache::lead_by_index(uint32_t site_id) {
  SiteState& state = sites_[site_id];
  const bool in_chain = runs_seldom(state) && !indexes_always();
  const size_t above = in_chain ? kSeldomPairsInChain : indexed_above_pairs_;
  if (!state.site.head || state.pairs.size() <= above) return;
  const bool is_first = state.by_index == nullptr;
  if (is_first) state.by_index = std::make_unique<IndexTable>();
  IndexTable& table = *state.by_index;
  bool is_new = false;
  if (table.state == IndexTable::State::kNotYet) {
    // The first targets may have been elsewhere: more of them, and it is tried again.
    is_new = (is_first || std::has_single_bit(state.pairs.size())) && make_index(state, site_id);
  }
  if (table.state != IndexTable::State::kLeads) return;
  for (auto i = static_cast<uint32_t>(table.stub_of.size()); i < state.pairs.size(); ++i) {
    table.stub_of.push_back(IndexTable::kNone);
    add_indexed(state, site_id, i);
  }
  if (is_new) erase_jmp(state.site.head->field);
}

void CodeCache::add_indexed(SiteState& state, uint32_t site_id, uint32_t index) {
  IndexTable& table = *state.by_index;
  const Pair& pair = state.pairs[index];
  if (pair.cut || pair.to.unit != state.unit) return;
  if (std::ranges::find(table.targets, pair.target) == table.targets.end()) return;
  const Unit& unit = *units_[state.unit];
  const uint32_t jump = unit.procedure.blocks[state.site.block].insn_count - 1;
  const CacheAddr tail = tail_of(state);
  const CacheAddr site_jump = copy_in_tail(state, jump);
  const std::span<const uint8_t> bytes(region_.code(tail), static_cast<size_t>(site_jump - tail));
  const auto stub_id = static_cast<uint32_t>(table.stubs.size());
  const CodeRecord record{CacheAddr(), CodeRecord::Kind::kIndexed, site_id, stub_id};
  std::optional<IndexedStub> stub = emit_in_front(state, pair, record, [&](auto& as) {
    const CacheRange mismatch = emit_piece(*unit.area, record, [&](auto& apart) {
      return emit_index_mismatch(apart, site_jump, *state.site.unspilled);
    });
    return emit_indexed_front(as, bytes, pair.target.value(), counted(pair.counter),
                              flags_at(pair.to), mismatch, *state.site.unspilled);
  });
  if (!stub) {
    const CacheAddr entry = way_into(pair.to);
    const auto emit = [&](auto& as) {
      return emit_indexed_stub(as, bytes, pair.target.value(), counted(pair.counter),
                               flags_at(pair.to), entry, site_jump, *state.site.unspilled);
    };
    // The hot part of a busy one then lies in one line of the instruction cache, unless the counter
    // spills a register: an interpreter goes through such a stub with every instruction of its
    // program.
    stub = emit_piece(*unit.area, record, emit,
                      !unit.weighed || is_busy(pair.to) ? Begins::kWithALine : Begins::kAnywhere);
  }
  table.stubs.push_back(*stub);
  table.stub_of[index] = stub_id;
  table.led += 1;
  set_index(state, index, stub->entry);
}

// All indexes of a pair's target.
void CodeCache::set_index(const SiteState& state, uint32_t pair, CacheAddr way) {
  if (!state.leads_by_index() || pair >= state.by_index->stub_of.size()) return;
  const IndexTable& table = *state.by_index;
  if (table.stub_of[pair] == IndexTable::kNone) return;
  for (uint32_t i = 0; i < table.targets.size(); ++i) {
    if (table.targets[i] != state.pairs[pair].target) continue;
    set_table_head(table.table_offset, static_cast<uint8_t>(i), way);
  }
}

void CodeCache::unset_index(const SiteState& state, uint32_t pair) {
  if (state.leads_by_index()) set_index(state, pair, state.by_index->fallback);
}

// From now on, and for good, the tail in the unit is used alone.
void CodeCache::leave_index(SiteState& state) {
  if (!state.site.head) return;
  if (state.leads_by_index()) put_jmp(state.site.head->field, tail_of(state));
  if (state.by_index == nullptr) state.by_index = std::make_unique<IndexTable>();
  state.by_index->state = IndexTable::State::kNoMore;
}

std::optional<CodeCache::BoundIndex> CodeCache::index_bounded_at(CacheAddr resume) const {
  const CodeRecord* record = record_at(resume);
  if (record == nullptr || !record->in_unit()) return std::nullopt;
  const Unit& unit = *units_[record->index];
  const uint32_t offset = unit.code.offset_of(resume);
  const std::optional<uint32_t> block = unit.code.block_at(offset);
  const SiteState* state = block ? site_of({unit.id, *block}) : nullptr;
  if (state == nullptr || !state->leads_by_index()) return std::nullopt;
  const isa::IndexedJump& jump = state->site.head->jump;
  const bool is_bounded = resume > copy_in_tail(*state, jump.bounded_by);
  if (!is_bounded || resume >= tail_of(*state)) return std::nullopt;
  return BoundIndex{static_cast<uint32_t>(state - sites_.data()), jump.index};
}

// Instructions of the tail that are done in front of `address`, which is in a stub.
uint32_t CodeCache::done_in_tail(const SiteState& state, const IndexedStub& stub,
                                 CacheAddr address) const {
  const Unit& unit = *units_[state.unit];
  const cfg::Block& block = unit.procedure.blocks[state.site.block];
  const CacheAddr until = stub.is_mismatch(address) ? stub.compares : address;
  auto left = static_cast<uint64_t>(std::min(until, stub.compares) - stub.entry);
  uint32_t insn = state.site.head->jump.first;
  while (insn + 1 < block.insn_count && left >= unit.insn_sizes[block.first_insn + insn]) {
    left -= unit.insn_sizes[block.first_insn + insn];
    insn += 1;
  }
  return insn;
}

CodeCache::TailPlace CodeCache::tail_place(const CodeRecord& record, CacheAddr address) const {
  const SiteState& state = sites_[record.index];
  const IndexTable& table = *state.by_index;
  const IndexedStub& stub = table.stubs[record.pair];
  if (stub.is_counted_at(address)) {
    const auto pair = std::ranges::find(table.stub_of, record.pair) - table.stub_of.begin();
    return {state.pairs[static_cast<size_t>(pair)].to, Side::kTarget};
  }
  return {{state.unit, state.site.block, done_in_tail(state, stub, address)}, Side::kTail};
}

bool CodeCache::is_boundary_of_tail(const CodeRecord& record, CacheAddr address) const {
  const SiteState& state = sites_[record.index];
  const IndexedStub& stub = state.by_index->stubs[record.pair];
  // The register that has been masked for the dispatch is set by the first instruction only.
  if (address == stub.entry) return !state.site.head->jump.masked;
  return address > stub.entry && address <= stub.compares;
}

}  // namespace tally::engine
