// What an earlier run has translated is translated again, a module at a time.  See recall.h.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "base/mix.h"
#include "cache/code_cache.h"

namespace tally::engine {

using namespace translate;

namespace {

// Tell what is on record apart; two that are alike only hide that one of them is new.
uint64_t key_of(const Recollection::Asked& one) {
  return mix(mix(1, one.module), one.address);
}
uint64_t key_of(const Recollection::Led& one) {
  const uint64_t modules = static_cast<uint64_t>(one.module) << 32 | one.to_module;
  return mix(mix(mix(2, modules), one.block), one.to);
}

}  // namespace

bool CodeCache::is_recalled(const Module& module) {
  return !module.generated && !module.from_memory && module.image != nullptr &&
         !module.image->build_id().empty() &&
         module.image->build_id().size() <= RecallFolder::kBuildIdBytesMax;
}

// Whether a unit may be on record.
bool CodeCache::is_lasting(const Unit& unit) {
  return !unit.dead && !unit.replaceable && is_recalled(*unit.module);
}

// A guess must leave room for what is asked for.
bool CodeCache::has_room_for_guesses() const {
  return next_counter_ < tcb::kCountersMax / 2 && check_room();
}

void CodeCache::set_recollection(Recollection recollection) {
  recollection_ = std::move(recollection);
  waiting_led_ = recollection_.led;
  recalled_.assign(recollection_.modules.size(), nullptr);
  note_led();
}

// Placed now or by another image run of the session: any placement counts exactly.
EdgeWeights::Known CodeCache::weights_of(const Module& module,
                                         const cfg::Procedure& procedure) const {
  const bool wanted =
      placement_ == PlacementKind::kEdges && optimizations_.has(Optimization::kWeights);
  if (weights_ == nullptr || !wanted || !is_recalled(module)) return {};
  return weights_->find(module.image->build_id(), procedure, shape_of(procedure));
}

// Whether a module is this one of the earlier run, and has not been recalled yet.
bool CodeCache::is_to_be_recalled(uint32_t index, const Module& module) const {
  // Jump tables are found in memory: not before they have been relocated.
  return is_recalled(module) && module.sealed && recalled_[index] == nullptr &&
         recollection_.modules[index] == module.image->build_id();
}

// The parts of modules that code has been asked for since the last time.
void CodeCache::recall_fresh() {
  if (recollection_.modules.empty()) return;
  bool more = false;
  for (size_t i = 0; i < fresh_.size(); ++i) {
    const Module& module = *units_[fresh_[i]]->module;
    for (uint32_t m = 0; m < recalled_.size(); ++m) {
      if (!is_to_be_recalled(m, module)) continue;
      recalled_[m] = &module;
      recall_units(m, module);
      recall_links(m, module);
      more = true;
    }
  }
  if (more) recall_pairs();
}

// Of what an earlier run has asked for, how much will be recalled next in an area.
uint32_t CodeCache::to_be_recalled(const Area& area) const {
  size_t procedures = 0;
  for (uint32_t m = 0; m < recalled_.size(); ++m) {
    const auto is_now = [&](uint32_t id) {
      const Module& module = *units_[id]->module;
      return module.area == &area && is_to_be_recalled(m, module);
    };
    if (std::ranges::none_of(fresh_, is_now)) continue;
    procedures += std::ranges::count(recollection_.asked, m, &Recollection::Asked::module);
  }
  return static_cast<uint32_t>(procedures);
}

// Of what has not run most is left out when all is made once more.
void CodeCache::expect_to_compact(bool soon) {
  to_be_left_out_.assign(region_.areas().size(), 0);
  if (!soon) return;
  for (const auto& unit : units_) {
    const bool moves = unit->area != nullptr && is_movable(unit->id);
    if (moves) to_be_left_out_[unit->area->index] += unit->procedure.blocks.size();
  }
}

// Each place is a part of a mapping of the target's, which only a request can make: before what is
// translated ahead there must be enough.  What has none is a stub.
Status CodeCache::reserve_asks() {
  constexpr uint32_t kSpare = 2 * asks::kPerPage, kSparePart = 8, kOfProcedure = 16;
  if (!optimizations_.has(Optimization::kAsks)) return Ok{};
  for (Area& area : region_.areas()) {
    const auto taken = static_cast<uint32_t>(area.asks.size());
    const size_t left_out = area.index < to_be_left_out_.size() ? to_be_left_out_[area.index] : 0;
    const uint32_t more = taken / kSparePart + kSpare + kOfProcedure * to_be_recalled(area) +
                          static_cast<uint32_t>(left_out);
    TRY(region_.map_asks(area, taken + more, remote_call_));
  }
  return Ok{};
}

// What an earlier run has asked for in a module: those that ran often first, so that they lie
// together, else as they were asked for, which mostly is next to who calls them.  (By falling
// weight they would lie worse: docs/design.md.)
std::vector<Recollection::Asked> CodeCache::asked_of(uint32_t index, const Module& module) const {
  constexpr uint64_t kOften = 128;
  std::vector<Recollection::Asked> result;
  for (const Recollection::Asked& asked : recollection_.asked) {
    const bool known = asked.how <= static_cast<uint8_t>(Arrival::kReturn);
    if (asked.module == index && known) result.push_back(asked);
  }
  if (weights_ == nullptr || !optimizations_.has(Optimization::kOrder)) return result;
  const elf::Image& image = *module.image;
  // What is under one description stays in its order, which decides what is found as what.
  const auto begin_of = [&](const Recollection::Asked& asked) {
    const LinkAddr address(asked.address);
    if (image.linkage_table_at(address) != nullptr) return address;
    const std::optional<LinkRange> described = image.unwind_range_at(address);
    return described ? described->begin : address;
  };
  std::unordered_set<uint64_t> often;
  for (const Recollection::Asked& asked : result) {
    const LinkAddr begin = begin_of(asked);
    const std::string& id = image.build_id();
    const uint64_t times =
        std::max(weights_->times_run(id, LinkAddr(asked.address)), weights_->times_run(id, begin));
    if (times >= kOften) often.insert(begin.value());
  }
  // (That of std::ranges returns what clang-tidy 14 cannot read in libstdc++ 12.)
  std::stable_partition(result.begin(), result.end(), [&](const Recollection::Asked& asked) {
    return often.contains(begin_of(asked).value());
  });
  return result;
}

void CodeCache::recall_units(uint32_t index, const Module& module) {
  for (const Recollection::Asked& asked : asked_of(index, module)) {
    if (!has_room_for_guesses()) return;
    const TargetAddr address = module.to_target(LinkAddr(asked.address));
    const size_t before = units_.size();
    make_ahead({address, static_cast<Arrival>(asked.how)});
    for (size_t i = before; i < units_.size(); ++i) units_[i]->recalled = true;
    stats_.recalled += units_.size() - before;
  }
}

// Direct branches from one procedure into another that have a counter of their own.
void CodeCache::recall_links(uint32_t index, const Module& module) {
  std::unordered_set<uint64_t> entered;
  for (const Recollection::Entered& one : recollection_.entered) {
    if (one.module == index) entered.insert(module.to_target(LinkAddr(one.block)).value());
  }
  for (uint32_t id = 0; id < links_.size() && !entered.empty(); ++id) {
    const uint64_t target = link_target(id).value();
    const bool waits = link_waits_[id] != 0 && !units_[links_[id].first]->replaceable;
    if (!waits || !entered.contains(target)) continue;
    const auto found = blocks_.find(target);
    if (!found || *found == kGone || !has_room_for_guesses()) continue;
    const BlockRef to = unpack(*found);
    if (units_[to.unit]->replaceable || !give_code(to)) continue;
    join_link(id, to);
    link_waits_[id] = 0;
  }
}

// Those whose both sides are there; the others wait for their modules.
void CodeCache::recall_pairs() {
  std::unordered_map<uint64_t, uint32_t> site_at;
  for (uint32_t id = 0; id < sites_.size(); ++id) {
    const BlockRef block{sites_[id].unit, sites_[id].site.block};
    const Unit& unit = *units_[block.unit];
    if (!unit.replaceable && !unit.dead) site_at.emplace(address_of(block).value(), id);
  }
  std::vector<Recollection::Led> waiting;
  for (const Recollection::Led& led : waiting_led_) {
    const Module* from = recalled_[led.module];
    const Module* to = recalled_[led.to_module];
    if (from == nullptr || to == nullptr) {
      waiting.push_back(led);
      continue;
    }
    if (from->gone || to->gone) continue;
    const auto site = site_at.find(from->to_target(LinkAddr(led.block)).value());
    const TargetAddr target = to->to_target(LinkAddr(led.to));
    const auto found = blocks_.find(target.value());
    if (site == site_at.end() || !found || *found == kGone) continue;
    if (!has_room_for_guesses()) continue;
    const BlockRef ref = unpack(*found);
    if (units_[ref.unit]->replaceable || !give_code(ref)) continue;
    SiteState& state = sites_[site->second];
    if (!give_code({state.unit, state.site.block})) continue;
    // Out of reach from where its block lies now.
    if (state.site.field == CacheAddr()) continue;
    if (!may_join(state, target)) continue;
    const size_t before = state.pairs.size();
    if (state.site.call) enter_landing({state.unit, state.site.block});
    join_pair(site->second, target, ref, is_most_led(led) ? MayBeRest::kYes : MayBeRest::kNo);
    if (state.pairs.size() > before) state.pairs.back().recalled = true;
  }
  waiting_led_ = std::move(waiting);
}

// Whether this run was not told all of it.  What could not be made at once (code from before its
// module was complete) is on record all the same.
bool CodeCache::has_news(const Recollection& left) const {
  std::vector<uint32_t> told_number;  // by module of `left`
  for (const std::string& id : left.modules) {
    const auto it = std::ranges::find(recollection_.modules, id);
    told_number.push_back(static_cast<uint32_t>(it - recollection_.modules.begin()));
  }
  std::unordered_set<uint64_t> told;
  told.reserve(recollection_.asked.size() + recollection_.led.size());
  for (const Recollection::Asked& one : recollection_.asked) told.insert(key_of(one));
  for (const Recollection::Led& one : recollection_.led) told.insert(key_of(one));
  const auto is_new = [&](auto one) {
    one.module = told_number[one.module];
    if constexpr (requires { one.to_module; }) one.to_module = told_number[one.to_module];
    return !told.contains(key_of(one));
  };
  return std::ranges::any_of(left.asked, is_new) || std::ranges::any_of(left.led, is_new);
}

// How often indirect branches went where, by way of units that others stand for now.
CodeCache::TimesLed CodeCache::times_led_before_renewals(
    const std::vector<uint64_t>& counters) const {
  TimesLed result;
  if (stats_.renewed == 0) return result;
  for (const SiteState& state : sites_) {
    for (const Pair& pair : state.pairs) {
      if (!units_[state.unit]->renewed_by && !units_[pair.to.unit]->renewed_by) continue;
      const uint64_t from = address_of({state.unit, state.site.block}).value();
      result[{from, pair.target.value()}] += counters[pair.counter];
    }
  }
  return result;
}

// Units without a counter that has counted leave it to their callers whether they were executed:
// those are on record that were come to by a counter, or to which a branch leads of one that was.
std::vector<bool> CodeCache::perhaps_executed(
    const std::vector<uint64_t>& counters,
    const std::function<bool(const Unit& unit)>& is_executed_itself) const {
  std::vector<bool> result(units_.size(), false);
  if (stats_.left_to_callers == 0) return result;
  const auto enter = [&](uint32_t counter, BlockRef to) {
    if (counters[counter] != 0) result[to.unit] = true;
  };
  for (const SiteState& site : sites_) {
    for (const Pair& pair : site.pairs) enter(pair.counter, pair.to);
  }
  for (const ArrivalStub& arrival : arrivals_) enter(arrival.counter, arrival.to);
  for (const LinkPair& pair : link_pairs_) enter(pair.counter, pair.to);
  std::unordered_map<uint64_t, uint32_t> at;
  std::vector<uint32_t> executed;
  for (const auto& unit : units_) {
    if (result[unit->id] || is_executed_itself(*unit)) {
      executed.push_back(unit->id);
    } else if (unit->left_to_callers()) {
      at.emplace(unit->module->key_of(unit->procedure.entry), unit->id);
    }
  }
  while (!executed.empty()) {
    const Unit& unit = *units_[executed.back()];
    executed.pop_back();
    const auto lead_to = [&](uint64_t key) {
      const auto found = at.find(key);
      if (found == at.end() || result[found->second]) return;
      result[found->second] = true;
      executed.push_back(found->second);
    };
    unit.for_each_branch_out([&](LinkAddr target) { lead_to(unit.module->key_of(target)); });
    for (const SiteState& site :
         std::span(sites_).subspan(unit.first_site, unit.code.sites.size())) {
      if (!site.rest) continue;
      const Unit& to = *units_[site.pairs[*site.rest].to.unit];
      lead_to(to.module->key_of(to.procedure.entry));
    }
  }
  return result;
}

// What has been executed, for the next run.  What was recalled in vain stays on record, for
// programs that do now this and now that, until a run finds it to be the larger part.
Recollected CodeCache::recollect(const std::vector<uint64_t>& counters) const {
  const auto is_counted = [&](int32_t id) {
    return id >= 0 && counters[static_cast<size_t>(id)] != 0;
  };
  const auto is_executed_itself = [&](const Unit& unit) {
    const auto& blocks = unit.plan.block_counter;
    const auto& edges = unit.plan.edge_counter;
    // Slots of a linkage table have nothing but the pairs of their one jump.
    const auto sites = std::span(sites_).subspan(unit.first_site, unit.code.sites.size());
    return std::any_of(blocks.begin(), blocks.end(), is_counted) ||
           std::any_of(edges.begin(), edges.end(), is_counted) ||
           std::any_of(sites.begin(), sites.end(), [&](const SiteState& site) {
             return std::any_of(site.pairs.begin(), site.pairs.end(),
                                [&](const Pair& pair) { return counters[pair.counter] != 0; });
           });
  };
  const std::vector<bool> perhaps = perhaps_executed(counters, is_executed_itself);
  const auto is_executed = [&](const Unit& unit) {
    if (perhaps[unit.id]) return true;
    const Unit* one = &unit;
    while (!is_executed_itself(*one) && one->renews) one = units_[*one->renews].get();
    return is_executed_itself(*one);
  };
  Recollected left;
  left.module_of.resize(units_.size());
  Recollection& result = left.what;
  std::map<std::string, uint32_t> numbers;
  const auto number_of = [&](const Module& module) {
    const std::string& id = module.image->build_id();
    const auto [it, fresh] = numbers.try_emplace(id, result.modules.size());
    if (fresh) result.modules.push_back(id);
    return it->second;
  };
  const auto note = [&](const Unit& unit) {
    const uint32_t module = number_of(*unit.module);
    result.asked.push_back({module, static_cast<uint8_t>(unit.asked_how), unit.asked.value()});
    left.module_of[unit.id] = module;
  };
  std::vector<const Unit*> in_vain;
  for (const auto& unit : units_) {
    if (!is_lasting(*unit)) continue;
    const bool executed = is_executed(*unit);
    if (executed) note(*unit);
    if (!executed && unit->recalled) in_vain.push_back(unit.get());
  }
  const bool keeps_vain = in_vain.size() <= result.asked.size();
  if (keeps_vain) std::for_each(in_vain.begin(), in_vain.end(), [&](const Unit* u) { note(*u); });
  std::set<Recollection::Entered> entered;
  for (const LinkPair& pair : link_pairs_) {
    const Unit& to = *units_[pair.to.unit];
    if (counters[pair.counter] == 0 || pair.to.insn != 0 || !is_lasting(to)) continue;
    entered.insert({number_of(*to.module), to.address_of(pair.to.block).value()});
  }
  result.entered.assign(entered.begin(), entered.end());
  left.keeps_vain = keeps_vain;
  return left;
}

// Which targets indirect branches had; `counters` with those that did not count filled in.
void CodeCache::recollect_led(const std::vector<uint64_t>& counters, Recollected& left) const {
  Recollection& result = left.what;
  std::map<std::string, uint32_t> numbers;
  for (const std::string& id : result.modules) numbers.emplace(id, numbers.size());
  const auto number_of = [&](const Module& module) {
    const std::string& id = module.image->build_id();
    const auto [it, fresh] = numbers.try_emplace(id, result.modules.size());
    if (fresh) result.modules.push_back(id);
    return it->second;
  };
  const TimesLed before = times_led_before_renewals(counters);
  const auto times_before = [&](const SiteState& state, const Pair& pair) -> uint64_t {
    if (before.empty()) return 0;
    const auto earlier =
        before.find({address_of({state.unit, state.site.block}).value(), pair.target.value()});
    return earlier == before.end() ? 0 : earlier->second;
  };
  std::vector<std::pair<uint64_t, Recollection::Led>> led;
  for (const SiteState& state : sites_) {
    const Unit& unit = *units_[state.unit];
    if (!is_lasting(unit)) continue;
    for (const Pair& pair : state.pairs) {
      const Unit& to = *units_[pair.to.unit];
      const uint64_t times = counters[pair.counter] + times_before(state, pair);
      if (pair.cut || !is_lasting(to) || (times == 0 && !(left.keeps_vain && pair.recalled)))
        continue;
      led.push_back(
          {times,
           {number_of(*unit.module), number_of(*to.module),
            unit.address_of(state.site.block).value(), to.module->to_link(pair.target).value()}});
    }
  }
  std::stable_sort(led.begin(), led.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [times, one] : led) result.led.push_back(one);
  left.news = !left.keeps_vain || has_news(result);
}

}  // namespace tally::engine
