// See unit_flow.h.
#include "ledger/unit_flow.h"

#include "base/check.h"

namespace tally::engine {

using translate::kNoCounter;

UnitFlows::UnitFlows(const Translated& translated, const LedgerBooks& ledger,
                     std::span<const uint64_t> counters)
    : translated_(translated), ledger_(ledger), counters_(counters) {
  inflow_.resize(translated.units().size());
  entered_.resize(translated.units().size());
  sites_of_.resize(translated.units().size());
  for (const SiteState& site : translated.sites()) {
    if (!site.pairs.empty()) sites_of_[site.unit].push_back(&site);
    for (const Pair& pair : site.pairs) {
      if (pair.rest) continue;  // follows when the site's unit is solved
      const bool inside = pair.to.unit == site.unit && !site.site.call;
      flow_into(pair.to, counter(pair.counter), inside);
    }
  }
  for (const ArrivalStub& arrival : translated.arrivals()) {
    flow_into(arrival.to, counter(arrival.counter), false);
  }
  // Direct branches into or out of code that is replaced, and into the middle of procedures, have
  // counters of their own.
  for (const LinkPair& pair : translated.link_pairs()) {
    flow_into(pair.to, counter(pair.counter), false);
  }
}

uint64_t UnitFlows::counter(uint32_t index) const {
  CHECK(index < counters_.size()) << "counter " << index;
  return counters_[index];
}

// What comes by the entry is a part of EXIT -> root.
void UnitFlows::flow_into(BlockRef to, uint64_t count, bool measured_elsewhere) {
  if (to.insn != 0) begun_inside_[{to.unit, to.block}][to.insn] += count;
  if (measured_elsewhere) return;
  if (translated_.is_entry(to)) {
    entered_[to.unit] += count;
  } else {
    inflow_[to.unit].push_back({to.block, count});
  }
}

const std::map<uint32_t, uint64_t>& UnitFlows::begun_inside(BlockRef block) const {
  static const std::map<uint32_t, uint64_t> kNone;
  if (begun_inside_.empty()) return kNone;
  const auto it = begun_inside_.find({block.unit, block.block});
  return it == begun_inside_.end() ? kNone : it->second;
}

uint64_t UnitFlows::handed_to(BlockRef block) const {
  if (ledger_.handed_over().empty()) return 0;
  const auto it = ledger_.handed_over().find({block.unit, block.block});
  return it == ledger_.handed_over().end() ? 0 : it->second.to;
}

uint64_t UnitFlows::planned(int32_t number) const {
  CHECK(number != kNoCounter);
  return number == translate::kUnnumbered ? 0 : counter(static_cast<uint32_t>(number));
}

void UnitFlows::make_graph_of(const Unit& unit, UnitEquations& equations) const {
  placement::Graph& graph = equations.graph;
  std::vector<std::optional<uint64_t>>& known = equations.measured.edges;
  graph = make_graph(unit.procedure);
  known.assign(graph.edges.size(), std::nullopt);
  for (size_t e = 0; e < unit.procedure.edges.size(); ++e) {
    if (graph.edges[e].role == placement::EdgeRole::kMeasured) known[e] = 0;
    if (unit.plan.edge_counter[e] == kNoCounter) continue;
    known[e] = planned(unit.plan.edge_counter[e]);
    auto over = ledger_.overcounted().find({unit.id, static_cast<uint32_t>(e)});
    if (over != ledger_.overcounted().end()) *known[e] -= over->second;
  }
  const auto add = [&](uint32_t from, uint32_t to, uint64_t count) {
    graph.edges.push_back({from, to, placement::EdgeRole::kMeasured, 0});
    known.push_back(count);
  };
  for (const SiteState* site : sites_of_[unit.id]) {
    if (site->site.call) continue;
    for (const Pair& pair : site->pairs) {
      const bool inside = pair.to.unit == unit.id;
      if (pair.rest) {
        equations.rest = static_cast<placement::EdgeId>(graph.edges.size());
        graph.edges.push_back({site->site.block, graph.exit, placement::EdgeRole::kNormal, 0});
        known.push_back(std::nullopt);
        continue;
      }
      add(site->site.block, inside ? pair.to.block : graph.exit, counter(pair.counter));
    }
  }
  for (const Inflow& in : inflow_[unit.id]) add(graph.exit, in.block, in.count);
}

// How often a block was entered that has a counter of its own.
uint64_t UnitFlows::times_counted(const Unit& unit, uint32_t block) const {
  uint64_t count = planned(unit.plan.block_counter[block]);
  const auto uncounted = ledger_.uncounted().find({unit.id, block});
  if (uncounted != ledger_.uncounted().end()) count += uncounted->second;
  // Runs that began behind the counter.
  for (const auto& [insn, times] : begun_inside({unit.id, block})) {
    if (unit.code.blocks[block].probe_insn <= insn) count += times;
  }
  return count + handed_to({unit.id, block});
}

UnitEquations UnitFlows::equations_of(const Unit& unit) const {
  UnitEquations result;
  make_graph_of(unit, result);
  result.measured.nodes.assign(result.graph.node_count, std::nullopt);
  for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) {
    if (unit.plan.block_counter[b] != kNoCounter) {
      result.measured.nodes[b] = times_counted(unit, b);
    }
  }
  const auto& terms = ledger_.terms();
  auto term = terms.lower_bound({unit.id, 0, profile::AbnormalKind{}, 0});
  for (; term != terms.end() && std::get<0>(term->first) == unit.id; ++term) {
    result.abnormal.push_back({std::get<1>(term->first), term->second.entered, term->second.left});
  }
  const auto& handed = ledger_.handed_over();
  auto call = handed.lower_bound({unit.id, 0});
  for (; call != handed.end() && call->first.first == unit.id; ++call) {
    result.abnormal.push_back({call->first.second, call->second.to, call->second.from});
  }
  return result;
}

UnitEquations UnitFlows::equations_of(const Unit& unit, uint64_t entries) const {
  UnitEquations result = equations_of(unit);
  const size_t from_exit = unit.procedure.edges.size();
  result.graph.edges[from_exit].role = placement::EdgeRole::kMeasured;
  result.measured.edges[from_exit] = entries;
  return result;
}

}  // namespace tally::engine
