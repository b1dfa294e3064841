// See renewal_of.h.
#include "cache/renewal_of.h"

#include <algorithm>

namespace tally::engine {

std::vector<bool> blocks_that_ran(const Unit& unit, const Renewal& renewal) {
  const cfg::Procedure& procedure = unit.procedure;
  std::vector<bool> runs(procedure.blocks.size(), procedure.edges.empty() && renewal.heaviest > 0);
  // One that was hot has had code for what had run until then.
  for (size_t b = 0; b < runs.size() && unit.weighed; ++b) {
    runs[b] = runs[b] || unit.code.blocks[b].exists();
  }
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (renewal.steps[e] == 0) continue;
    runs[edge.from] = true;
    if (edge.to != cfg::kExitBlock) runs[edge.to] = true;
  }
  return runs;
}

uint32_t bytes_that_ran(const Unit& unit, const Renewal& renewal) {
  const std::vector<bool> runs = blocks_that_ran(unit, renewal);
  uint32_t bytes = 0;
  for (size_t b = 0; b < runs.size(); ++b) {
    if (runs[b]) bytes += unit.procedure.blocks[b].size_bytes;
  }
  return std::max(bytes, unit.ran_bytes);
}

}  // namespace tally::engine
