// See not_exact.h.
#include "ledger/not_exact.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "profile/counts.h"

namespace tally::engine {

namespace {

std::string place_of(const Unit& unit, LinkAddr at) {
  return fmt::format("{}+{:#x}", unit.module->path, at.value());
}

}  // namespace

void name_imbalances(const Unit& unit, const placement::Solution& solution,
                     std::vector<profile::Issue>& issues) {
  for (const placement::Imbalance& i : solution.imbalances) {
    if (i.kind == placement::Imbalance::Kind::kUnknown) continue;  // the counts say so themselves
    const bool at_exit = i.node >= unit.procedure.blocks.size();
    const LinkAddr at = at_exit ? unit.procedure.entry : unit.address_of(i.node);
    issues.push_back({place_of(unit, at),
                      fmt::format("flow is not conserved at {}: {} more {}",
                                  at_exit ? "the exits of this procedure" : "this block",
                                  std::abs(i.excess), i.excess < 0 ? "out than in" : "in than out"),
                      1});
  }
}

void name_shared_landings(const Unit& unit, const placement::Solution& solution,
                          std::vector<profile::Issue>& issues) {
  if (!unit.open_calls) return;
  std::map<uint32_t, uint32_t> counted;  // by the block behind: the edge whose counter runs
  const SharedVector<cfg::Edge>& edges = unit.procedure.edges;
  for (uint32_t e = 0; e < edges.size(); ++e) {
    if (edges[e].kind == cfg::EdgeKind::kCallReturn) counted[edges[e].to] = e;
  }
  for (uint32_t e = 0; e < edges.size(); ++e) {
    const cfg::Edge& edge = edges[e];
    if (edge.kind != cfg::EdgeKind::kCallReturn || counted[edge.to] == e) continue;
    if (solution.nodes[edge.from].value == 0) continue;  // bytes that are no code, most likely
    issues.push_back({place_of(unit, unit.address_of(edge.to)),
                      "two overlapping calls come back here; which of them did cannot be told", 1});
  }
}

void name_impossible(profile::Profile& profile) {
  for (profile::Block& block : profile.blocks) {
    if (block.partial.empty() || block.source == profile::CountSource::kUnknown) continue;
    const auto counts = profile::instruction_counts(block);
    if (std::ranges::none_of(counts, [](__int128 count) { return count < 0; })) continue;
    const profile::Procedure& procedure = profile.procedures[block.procedure_id];
    profile.issues.push_back(
        {fmt::format("{}+{:#x}", profile.modules[procedure.module_id].path, block.address.value()),
         "more runs stopped short in this block than came to it; its count is "
         "not known",
         1});
    block.source = profile::CountSource::kUnknown;
    block.count = 0;
    block.partial.clear();
  }
}

}  // namespace tally::engine
