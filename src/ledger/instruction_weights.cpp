// See instruction_weights.h.
#include "ledger/instruction_weights.h"

#include <algorithm>
#include <optional>

#include "placement/placement.h"

namespace tally::engine {

using translate::kNoCounter;

namespace {

// A jump that leads out of its unit without a counter, and what an entry stands for there.
struct Rest {
  uint32_t block = 0;
  uint64_t entry = 0;
};

// Potentials of one unit: a walk over the arcs that are not measured, from every half not yet seen.
class Potentials {
 public:
  // `sizes`: by block; `steps`: by edge of the procedure.
  Potentials(const Unit& unit, const std::vector<uint64_t>& sizes,
             const std::vector<uint64_t>& steps, const std::optional<Rest>& rest)
      : unit_(unit), sizes_(sizes), steps_(steps), rest_(rest), graph_(make_graph(unit.procedure)) {
    if (unit.left_to_callers()) graph_.edges.back().role = placement::EdgeRole::kMeasured;
    value_.assign(size_t{2} * graph_.node_count, 0);
    seen_.assign(value_.size(), false);
    index_arcs();
    for (uint32_t half = 0; half < value_.size(); ++half) walk(half);
  }
  uint64_t in(uint32_t node) const { return value_[2 * size_t{node}]; }
  uint64_t out(uint32_t node) const { return value_[2 * size_t{node} + 1]; }

 private:
  struct Arc {
    uint32_t to = 0;
    uint64_t step = 0;  // what the potential changes by, along the arc
  };

  bool counted(uint32_t node) const {
    return node < unit_.plan.block_counter.size() && unit_.plan.block_counter[node] != kNoCounter;
  }
  bool measured(size_t edge) const {
    if (graph_.edges[edge].role == placement::EdgeRole::kMeasured) return true;
    return edge < unit_.plan.edge_counter.size() && unit_.plan.edge_counter[edge] != kNoCounter;
  }
  template <class Do>
  void for_each_arc(Do action) const {
    for (size_t e = 0; e < graph_.edges.size(); ++e) {
      if (measured(e)) continue;
      const uint64_t step = e < steps_.size() ? steps_[e] : 0;
      action(2 * graph_.edges[e].from + 1, 2 * graph_.edges[e].to, step);
    }
    if (rest_) action(2 * rest_->block + 1, 2 * graph_.exit, rest_->entry);
    for (uint32_t node = 0; node < graph_.node_count; ++node) {
      if (counted(node)) continue;
      const uint64_t size = node < sizes_.size() ? sizes_[node] : 0;
      action(2 * node, 2 * node + 1, size);
    }
  }
  // Each arc stands at both of its ends.
  void index_arcs() {
    first_.assign(value_.size() + 1, 0);
    for_each_arc([&](uint32_t from, uint32_t to, uint64_t) {
      ++first_[from];
      ++first_[to];
    });
    uint32_t total = 0;
    for (uint32_t& first : first_) first = total += first;
    arcs_.resize(total);
    for_each_arc([&](uint32_t from, uint32_t to, uint64_t step) {
      arcs_[--first_[from]] = {to, step};
      arcs_[--first_[to]] = {from, uint64_t{0} - step};
    });
  }
  void walk(uint32_t start) {
    if (seen_[start]) return;
    seen_[start] = true;
    path_.push_back(start);
    while (!path_.empty()) {
      const uint32_t half = path_.back();
      path_.pop_back();
      for (uint32_t i = first_[half]; i < first_[half + size_t{1}]; ++i) {
        const Arc& arc = arcs_[i];
        if (seen_[arc.to]) continue;
        seen_[arc.to] = true;
        value_[arc.to] = value_[half] + arc.step;
        path_.push_back(arc.to);
      }
    }
  }

  const Unit& unit_;
  const std::vector<uint64_t>& sizes_;
  const std::vector<uint64_t>& steps_;
  const std::optional<Rest>& rest_;
  placement::Graph graph_;
  std::vector<uint64_t> value_;  // halves: in 2v, out 2v + 1
  std::vector<bool> seen_;
  std::vector<uint32_t> first_;
  std::vector<Arc> arcs_;
  std::vector<uint32_t> path_;
};

}  // namespace

void InstructionWeights::update() {
  const bool grows = halves_.size() < cache_.units().size();
  if (grows) left_to_callers_ = LeftToCallers(cache_);
  if ((grows && left_to_callers_.any()) || stands_for_more()) begin_again();
  counters_.resize(cache_.counters_used(), 0);
  if (halves_.size() < cache_.units().size()) add_units();
  const auto& late = cache_.late_counters();
  for (; late_done_ < late.size(); ++late_done_) add_late(late[late_done_]);
  const auto& pairs = cache_.pair_order();
  for (; pairs_done_ < pairs.size(); ++pairs_done_) {
    const SiteState& site = cache_.sites()[pairs[pairs_done_].first];
    add_pair(site, site.pairs[pairs[pairs_done_].second]);
  }
  for (; arrivals_done_ < cache_.arrivals().size(); ++arrivals_done_) {
    const ArrivalStub& arrival = cache_.arrivals()[arrivals_done_];
    add_flow_into(arrival.counter, arrival.to, false);
  }
  for (size_t i = link_pairs_done_; i < cache_.link_pairs().size(); ++i) {
    add_flow_into(cache_.link_pairs()[i].counter, cache_.link_pairs()[i].to, false);
  }
  if (left_to_callers_.any()) take_from_callers();
  link_pairs_done_ = cache_.link_pairs().size();
}

// Whether a branch leads, without a counter, where what it stands for is more than the branch.
bool InstructionWeights::stands_for_more() const {
  const auto& pairs = cache_.pair_order();
  for (size_t i = pairs_done_; i < pairs.size(); ++i) {
    const SiteState& site = cache_.sites()[pairs[i].first];
    const Pair& pair = site.pairs[pairs[i].second];
    if (!pair.rest) continue;
    if (!site.site.call || cache_.unit(pair.to.unit).left_to_callers()) return true;
  }
  return false;
}

// What units stand for that are known already may be another now.
void InstructionWeights::begin_again() {
  halves_.clear();
  counters_.clear();
  pairs_done_ = arrivals_done_ = link_pairs_done_ = late_done_ = 0;
}

// Those whose entries stand for something come first, callees in front of their callers.
void InstructionWeights::add_units() {
  const size_t known = halves_.size();
  halves_.resize(cache_.units().size());
  std::vector<uint32_t> left = left_to_callers_.units();
  std::ranges::reverse(left);
  for (const uint32_t id : left) add_unit(cache_.unit(id));
  for (size_t id = known; id < halves_.size(); ++id) {
    const Unit& unit = *cache_.units()[id];
    if (!unit.left_to_callers()) add_unit(unit);
  }
}

// What a direct branch to this address stands for besides; nothing, if its unit counts by itself.
uint64_t InstructionWeights::of_entry(const Unit& from, LinkAddr target) const {
  const Unit* to = left_to_callers_.entered_by(from, target);
  return to == nullptr ? 0 : halves_[to->id].entry;
}

void InstructionWeights::add_unit(const Unit& unit) {
  Halves& halves = halves_[unit.id];
  for (const cfg::Block& block : unit.procedure.blocks) halves.size.push_back(block.insn_count);
  for (const translate::Link& link : unit.code.links) {
    if (link.edge != translate::Link::kCallLink) continue;
    halves.size[link.block] += of_entry(unit, link.target);
  }
  std::optional<Rest> rest;
  for (uint32_t i = 0; i < unit.code.sites.size(); ++i) {
    const SiteState& site = cache_.sites()[unit.first_site + i];
    if (!site.rest) continue;
    const uint64_t entry = halves_[site.pairs[*site.rest].to.unit].entry;
    if (site.site.call) {
      halves.size[site.site.block] += entry;
    } else {
      rest = Rest{site.site.block, entry};
    }
  }
  std::vector<uint64_t> steps(unit.procedure.edges.size(), 0);
  for (size_t e = 0; e < steps.size(); ++e) {
    steps[e] = step_of(unit, unit.procedure.edges[e]);
  }
  const Potentials potentials(unit, halves.size, steps, rest);
  const auto exit = static_cast<uint32_t>(unit.procedure.blocks.size());
  for (uint32_t node = 0; node <= exit; ++node) {
    halves.in.push_back(potentials.in(node));
    halves.out.push_back(potentials.out(node));
  }
  if (unit.left_to_callers()) {
    halves.entry = halves.out[exit] - halves.in[unit.procedure.entry_block];
  }
  for (uint32_t b = 0; b < exit; ++b) {
    const int32_t counter = unit.plan.block_counter[b];
    if (counter >= 0) counters_[static_cast<size_t>(counter)] = of_block(unit, b);
  }
  for (size_t e = 0; e < unit.procedure.edges.size(); ++e) {
    const int32_t counter = unit.plan.edge_counter[e];
    if (counter < 0) continue;
    counters_[static_cast<size_t>(counter)] = of_edge(unit, static_cast<uint32_t>(e));
  }
}

uint64_t InstructionWeights::of_edge(const Unit& unit, uint32_t index) const {
  const Halves& halves = halves_[unit.id];
  const cfg::Edge& edge = unit.procedure.edges[index];
  const uint64_t in = edge.to == cfg::kExitBlock ? halves.in.back() : halves.in[edge.to];
  return halves.out[edge.from] - in + step_of(unit, edge);
}

// Branches out of the unit stand for what they lead to.
uint64_t InstructionWeights::step_of(const Unit& unit, const cfg::Edge& edge) const {
  return edge.kind == cfg::EdgeKind::kLeave ? of_entry(unit, edge.target) : 0;
}

// Its unit is known.
void InstructionWeights::add_late(const LateCounter& late) {
  const Unit& unit = cache_.unit(late.unit);
  const bool of_block = late.what == translate::EmitRequest::Counts::kBlock;
  const int32_t counter = (of_block ? unit.plan.block_counter : unit.plan.edge_counter)[late.index];
  counters_[static_cast<size_t>(counter)] =
      of_block ? this->of_block(unit, late.index) : of_edge(unit, late.index);
}

// What one more run of a counted block stands for.
uint64_t InstructionWeights::of_block(const Unit& unit, uint32_t block) const {
  const Halves& halves = halves_[unit.id];
  return halves.in[block] - halves.out[block] + halves.size[block];
}

// The same ways in as finish.cpp adds to the unit's graph.
void InstructionWeights::add_flow_into(uint32_t counter, BlockRef to, bool counted_as_edge) {
  const Unit& unit = cache_.unit(to.unit);
  const Halves& halves = halves_[to.unit];
  uint64_t& weight = counters_[counter];
  if (!counted_as_edge) {
    weight += cache_.is_entry(to) ? halves.entry : halves.out.back() - halves.in[to.block];
  }
  if (to.insn == 0) return;
  // Begun in the middle: not executed in front of it, and perhaps behind the block's counter.
  weight -= to.insn;
  const bool block_counted = unit.plan.block_counter[to.block] != kNoCounter;
  if (block_counted && unit.code.blocks[to.block].probe_insn <= to.insn) {
    weight += of_block(unit, to.block);
  }
}

// Branches that lead, by a counter, to another unit than the one that their block or edge stands
// for.
void InstructionWeights::take_from_callers() {
  if (link_pairs_done_ == cache_.link_pairs().size()) return;
  std::vector<const Unit*> by_link;
  for (const auto& unit : cache_.units()) {
    if (!unit->code.links.empty()) by_link.push_back(unit.get());
  }
  std::ranges::sort(by_link, {}, &Unit::first_link);
  for (size_t i = link_pairs_done_; i < cache_.link_pairs().size(); ++i) {
    const LinkPair& pair = cache_.link_pairs()[i];
    const auto behind = std::ranges::upper_bound(by_link, pair.link, {}, &Unit::first_link);
    CHECK(behind != by_link.begin()) << "a branch of no unit: " << pair.link;
    const Unit& from = **(behind - 1);
    const uint32_t index = pair.link - from.first_link;
    CHECK(index < from.code.links.size()) << "a branch of no unit: " << pair.link;
    counters_[pair.counter] -= of_entry(from, from.code.links[index].target);
  }
}

void InstructionWeights::add_pair(const SiteState& site, const Pair& pair) {
  if (pair.rest) return;
  const bool inside = pair.to.unit == site.unit && !site.site.call;
  add_flow_into(pair.counter, pair.to, inside);
  if (site.site.call) {
    // Its block stands for a call of where most lead.
    if (site.rest) counters_[pair.counter] -= halves_[site.pairs[*site.rest].to.unit].entry;
    return;
  }
  const Halves& from = halves_[site.unit];
  counters_[pair.counter] +=
      from.out[site.site.block] - (inside ? from.in[pair.to.block] : from.in.back());
}

uint64_t InstructionWeights::of_booking(const BookingKey& key, int64_t times) const {
  const Unit& unit = cache_.unit(key.unit);
  const Halves& halves = halves_[key.unit];
  const auto n = static_cast<uint64_t>(times);
  switch (key.kind) {
    case BookingKind::kEntered:
      return n * (halves.out.back() - halves.in[key.index]);
    case BookingKind::kLeft:
      return n * (halves.out[key.index] - halves.in.back());
    case BookingKind::kUncounted:
      return unit.plan.block_counter[key.index] == kNoCounter ? 0 : n * of_block(unit, key.index);
    case BookingKind::kOvercounted: {
      const int32_t counter = unit.plan.edge_counter[key.index];
      return counter < 0 ? 0 : uint64_t{0} - n * counters_[static_cast<size_t>(counter)];
    }
    case BookingKind::kUnexecuted:
      return uint64_t{0} - n;
    case BookingKind::kUncalled:
      return n * (unit.procedure.blocks[key.index].insn_count - halves.size[key.index]);
  }
  return 0;
}

}  // namespace tally::engine
