// Procedures are translated again, while the program stands still.  See engine/renewal.h.
//
// The new unit has the same blocks and edges as the old one; its counters lie elsewhere, and its
// blocks in another order.  Everything that leads to the old unit is then led to the new one.  The
// old one stays where it is: its counters count, and nobody runs in it any more.
#include <string.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/sieve.h"
#include "cache/code_cache.h"
#include "cache/inductions.h"

namespace tally::engine {

using namespace translate;

// What the program may replace, and what the ledger looks into while it runs, stays as it is; and
// so does what callers count for: they would not tell the new unit from the old one.
bool CodeCache::is_renewable(uint32_t id) const {
  const Unit& unit = *units_[id];
  const bool is_first = (!unit.weighed && !unit.renews) || unit.for_now;
  return (is_first || has_former_returns(unit)) && is_movable(id);
}

bool CodeCache::is_movable(uint32_t id) const {
  const Unit& unit = *units_[id];
  return !unit.dead && !unit.replaceable && !unit.open_calls && !unit.checked &&
         !unit.left_to_callers() && !unit.module->gone && !unit.module->from_memory &&
         !unit.module->generated && unit.plan.events.empty();
}

std::unique_ptr<Unit> CodeCache::again(const Unit& old) const {
  auto unit = std::make_unique<Unit>();
  unit->id = static_cast<uint32_t>(units_.size());
  unit->module = old.module;
  unit->area = old.module->area;
  unit->procedure = old.procedure;
  unit->insn_sizes = old.insn_sizes;
  unit->provenance = old.provenance;
  unit->asked = old.asked;
  unit->asked_how = old.asked_how;
  unit->recalled = old.recalled;
  unit->counts_branches = old.counts_branches;
  unit->weighed = true;
  unit->renews = old.id;
  return unit;
}

// Control that comes to one of its addresses comes to it: nothing of it is gone, or another's.
bool CodeCache::is_current(const Unit& unit) const {
  for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) {
    const auto found = blocks_.find(unit.module->to_target(unit.address_of(b)).value());
    if (!found || *found != pack({unit.id, b})) return false;
  }
  return modules_.at(unit.module->to_target(unit.procedure.entry)) == unit.module;
}

void CodeCache::pair_returns() {
  CHECK(may_pair_returns());
  returns_form_ = Returns::kPairedLate;
  landings_.pair();
}

// Translates one procedure again; no way leads there yet.  False where that cannot be done: it
// stays as it is.
bool CodeCache::make_again(Unit& old, const Renewal& renewal) {
  const Area* area = old.module->area;
  if (!has_room_for_guesses() || area == nullptr || area->is_for_pieces() || !is_current(old)) {
    return false;
  }
  std::optional<cfg::Procedure> procedure =
      with_instructions(old, old.module->view, std::exchange(late_insns_, {}));
  if (!procedure) return false;
  const bool done = make_again(old, *procedure, renewal);
  late_insns_ = std::move(procedure->insns);
  return done;
}

bool CodeCache::make_again(Unit& old, const cfg::Procedure& procedure, const Renewal& renewal) {
  std::unique_ptr<Unit> unit = again(old);
  KnownProcedure known;
  {
    const PhaseTimer timer(phases_, Phase::kPlace);
    const cfg::CodeView& view = old.module->view;
    MeasuredWeights measured;
    measured.steps = renewal.steps;
    measured.order = optimizations_.has(Optimization::kOrder);
    measured.in_parts = may_defer(*unit);
    measured.followed = followed();
    measured.is_over = renewal.is_over;
    if (may_induce(*unit)) {
      measured.is_inductive = inductive_blocks(procedure, unit->insn_sizes, view);
    }
    known.plan = make_plan(procedure, view, placement_, measured, [&] { return known.counters++; });
    if (placement_ == PlacementKind::kEdges) {
      find_inductions(procedure, unit->insn_sizes, view, known.plan);
    }
    known.expected = expected_counts(procedure, known.plan, known.counters, renewal.steps,
                                     static_cast<uint32_t>(std::bit_width(renewal.heaviest)));
  }
  number_probes(*unit, known);
  if (!emit(*unit, procedure, *unit->area)) return false;
  unit->ran_bytes = bytes_that_ran(old, renewal);
  const bool has_any = std::ranges::any_of(unit->code.blocks.made(), &BlockCode::exists);
  stats_.left_out += has_any ? 0 : 1;
  by_range_.remove(old.module->id, old.procedure.range, old.id);
  blocks_.remove(old.id, old.procedure, old.module->bias);
  old.dead = true;
  old.renewed_by = unit->id;
  register_unit(*unit, *unit->area);
  stats_.renewed += 1;
  stats_.paired_late += unit->code.returns != old.code.returns ? 1 : 0;
  units_.push_back(std::move(unit));
  return true;
}

// The block that stands for another now.
BlockRef CodeCache::newest(BlockRef ref) const {
  while (units_[ref.unit]->renewed_by) ref.unit = *units_[ref.unit]->renewed_by;
  return ref;
}

// Each renewed unit takes its pairs and arrivals with it, and each way in from elsewhere.
bool CodeCache::has_room_for_pieces() const {
  constexpr uint64_t kSpareBytes = 16 << 20;
  return std::ranges::all_of(region_.areas(), [](const Area& area) {
    return area.used_bytes + kSpareBytes <= kAreaBodiesEnd;
  });
}

void CodeCache::renew(std::span<const Renewal> wanted, std::span<const uint64_t> counters) {
  if (!has_room_for_pieces()) return;
  std::vector<uint32_t> made;
  for (const Renewal& one : wanted) {
    if (!make_again(*units_[one.unit], one)) continue;
    made.push_back(one.unit);
    units_.back()->for_now = one.for_now;
  }
  for (const uint32_t id : made) move_landings(*units_[id]);
  move_links(made);
  known_targets_.move([this](BlockRef to) { return newest(to); },
                      [this](BlockRef to) { return known_way(to); });
  move_pairs(made);
  for (const uint32_t id : made) repeat_pairs(*units_[id], counters);
  for (const uint32_t id : made) {
    // Nobody comes to the old one's branches any more.
    const Unit& old = *units_[id];
    for (uint32_t i = 0; i < old.code.links.size(); ++i) link_waits_[old.first_link + i] = 0;
    join_links(*units_[*old.renewed_by]);
  }
}

// Returns behind calls go to the new unit.
void CodeCache::move_landings(const Unit& old) {
  const uint32_t id = *old.renewed_by;
  const Unit& unit = *units_[id];
  for (uint32_t b = 0; b < old.procedure.blocks.size(); ++b) {
    const uint64_t behind = old.module->to_target(old.end_of(b)).value();
    const uint64_t* memo = call_blocks_.find(behind);
    if (memo != nullptr && *memo != kGone && unpack(*memo).unit == old.id) {
      call_blocks_.set(behind, pack({id, unpack(*memo).block}));
    }
    const TargetAddr address = old.module->to_target(old.address_of(b));
    if (!has_landing(address)) continue;
    landings_.remove(address.value());
    const BlockCode& code = unit.code.blocks[b];
    // Other ways back are found when they are asked for.
    if (code.landing == BlockCode::kNone) continue;
    add_landing({id, b}, unit.code.address(code.landing));
  }
}

CacheAddr CodeCache::branch_target(CacheAddr field) {
  int32_t distance = 0;
  memcpy(&distance, region_.code(field), sizeof distance);
  return field + 4 + static_cast<int64_t>(distance);
}

// A jump no more: a hash table's dispatch stands behind it (lead_to_table).
bool CodeCache::is_erased(CacheAddr field) {
  constexpr uint8_t kJmp = 0xe9;
  return *region_.code(CacheAddr(field.value() - 1)) != kJmp;
}

void CodeCache::hold(std::span<const uint32_t> units) {
  landings_.hold();
  for (const uint32_t id : units) {
    const Unit& unit = *units_[id];
    for (uint32_t i = 0; i < unit.code.sites.size(); ++i) hold_jump(unit.first_site + i);
  }
}

void CodeCache::hold_jump(uint32_t site) {
  const SiteState& state = sites_[site];
  if (state.site.call || state.pairs.empty()) return;
  const CacheAddr field = state.site.field;
  const bool erased = is_erased(field);
  const bool by_index = state.leads_by_index();
  if (by_index) put_jmp(state.site.head->field, tail_of(state));
  held_jumps_.push_back({site, field, state.site.miss_stub, erased, CacheAddr(), by_index});
  if (erased) {
    put_jmp(field, state.site.miss_stub);
    return;
  }
  held_jumps_.back().led_to = branch_target(field);
  set_branch(field, state.site.miss_stub);
}

// What has been led elsewhere in the meantime stays as it is, and so does what has lost all its
// targets: that leads to be asked, too.
void CodeCache::release() {
  landings_.release();
  for (const HeldJump& held : held_jumps_) {
    if (held.by_index && sites_[held.site].leads_by_index()) {
      erase_jmp(sites_[held.site].site.head->field);
    }
    if (is_erased(held.field) || branch_target(held.field) != held.miss_stub) continue;
    const SiteState& state = sites_[held.site];
    if (held.erased && state.buckets != nullptr) {
      erase_jmp(held.field);
    } else if (state.buckets != nullptr) {
      set_branch(held.field, held.led_to);
    } else if (!state.chain.empty()) {
      set_branch(held.field, first_of(state, state.chain.front().entry));
    }
  }
  held_jumps_.clear();
}

// Direct branches from elsewhere that have been taken; the others ask when they are.
void CodeCache::move_links(const std::vector<uint32_t>& made) {
  size_t blocks = 0;
  for (const uint32_t id : made) blocks += units_[id]->procedure.blocks.size();
  Sieve sieve(8 * blocks);
  for (const uint32_t id : made) {
    const Unit& old = *units_[id];
    for (uint32_t b = 0; b < old.procedure.blocks.size(); ++b) {
      sieve.add(old.module->to_target(old.address_of(b)).value());
    }
  }
  for (uint32_t id = 0; id < links_.size(); ++id) {
    const auto [source, index] = links_[id];
    const Unit& unit = *units_[source];
    const Link& link = unit.code.links[index];
    const TargetAddr target = unit.module->to_target(link.target);
    const bool has_place = link.field != CacheAddr();
    if (unit.dead || !has_place || !sieve.may_have(target.value())) continue;
    const auto found = blocks_.find(target.value());
    if (!found || *found == kGone || !units_[unpack(*found).unit]->renews) continue;
    if (branch_target(link.field) == link.miss_stub) continue;
    if (unit.replaceable || !has_code(unpack(*found))) {
      current_pair_.erase(id);
      set_branch(link.field, link.miss_stub);
    } else {
      set_branch(link.field, way_in(id, unpack(*found)));
    }
  }
}

// Indirect branches from elsewhere.
void CodeCache::move_pairs(const std::vector<uint32_t>& made) {
  std::vector<bool> is_made(units_.size(), false);
  for (const uint32_t id : made) is_made[id] = true;
  for (uint32_t site = 0; site < sites_.size(); ++site) {
    if (units_[sites_[site].unit]->dead) continue;
    const size_t pairs = sites_[site].pairs.size();
    for (uint32_t i = 0; i < pairs; ++i) {
      const Pair pair = sites_[site].pairs[i];
      if (pair.cut || !is_made[pair.to.unit]) continue;
      remove_pair(site, i);
      // Who goes where nobody has gone before asks again.
      const BlockRef to = newest(pair.to);
      if (has_code(to)) join_pair(site, pair.target, to);
    }
  }
}

// The indirect branches of a new unit know what those of the old one knew, the likeliest first.
void CodeCache::repeat_pairs(const Unit& old, std::span<const uint64_t> counters) {
  const Unit& unit = *units_[*old.renewed_by];
  for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
    const uint32_t id = unit.first_site + i;
    const SiteState* known = site_of({old.id, sites_[id].site.block});
    CHECK(known != nullptr) << "a unit with other indirect branches than the one before";
    std::vector<Pair>& before = sites_[static_cast<size_t>(known - sites_.data())].pairs;
    std::vector<Pair> pairs = before;
    std::erase_if(pairs, [](const Pair& pair) { return pair.cut; });
    // Who is at the old one goes on in the new unit.
    for (Pair& pair : before) pair.cut = true;
    std::ranges::stable_sort(pairs, {}, [&](const Pair& pair) {
      if (pair.rest) return UINT64_MAX;
      return pair.counter < counters.size() ? counters[pair.counter] : 0;
    });
    if (!has_code({unit.id, sites_[id].site.block})) continue;
    std::erase_if(pairs, [&](const Pair& pair) { return !has_code(newest(pair.to)); });
    for (size_t p = 0; p < pairs.size(); ++p) {
      const bool likeliest = p + 1 == pairs.size();
      join_pair(id, pairs[p].target, newest(pairs[p].to),
                likeliest ? MayBeRest::kYes : MayBeRest::kNo);
    }
    if (!pairs.empty() && sites_[id].site.call) enter_landing({unit.id, sites_[id].site.block});
  }
}

}  // namespace tally::engine
