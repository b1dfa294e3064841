// See rests.h.
#include "ledger/rests.h"

#include <fmt/format.h>

#include "base/check.h"

namespace tally::engine {

void Rests::settle(const Unit& unit, const placement::Solution& solution,
                   std::optional<placement::EdgeId> edge, std::vector<profile::Issue>& issues) {
  for (const SiteState* site : flows_.sites_of(unit)) {
    if (!site->rest) continue;
    CHECK(site->site.call || edge) << "a jump that is not counted, and no edge for it";
    uint64_t& times = times_[number(*site)];
    if (!site->site.call) {
      times = solution.edges[*edge].value;
      continue;
    }
    const int64_t rest = of_call(unit, *site, solution);
    times = rest < 0 ? 0 : static_cast<uint64_t>(rest);
    if (rest >= 0) continue;
    const LinkAddr at = unit.address_of(site->site.block);
    issues.push_back({fmt::format("{}+{:#x}", unit.module->path, at.value()),
                      "a branch was taken more often than its block was run",
                      static_cast<uint64_t>(-rest)});
  }
}

int64_t Rests::of_call(const Unit& unit, const SiteState& site,
                       const placement::Solution& solution) const {
  const uint32_t b = site.site.block;
  auto calls = static_cast<int64_t>(solution.nodes[b].value - flows_.handed_to({unit.id, b}));
  auto it = ledger_.partials().lower_bound({unit.id, b, 0, 0});
  for (; it != ledger_.partials().end(); ++it) {
    const auto& [id, block, first, last] = it->first;
    if (id != unit.id || block != b) break;
    if (last == unit.procedure.blocks[b].insn_count) calls += it->second;
  }
  const auto unarrived = ledger_.unarrived().find({unit.id, b});
  if (unarrived != ledger_.unarrived().end()) calls -= static_cast<int64_t>(unarrived->second);
  for (const Pair& pair : site.pairs) {
    if (!pair.rest) calls -= static_cast<int64_t>(counters_[pair.counter]);
  }
  return calls;
}

std::vector<LedMost> Rests::led_most(const Unit& unit) const {
  std::vector<LedMost> result;
  for (const SiteState* site : flows_.sites_of(unit)) {
    if (!site->site.call && unit.procedure.blocks.size() > 1) continue;
    const Pair* most = nullptr;
    for (const Pair& pair : site->pairs) {
      if (!translated_.is_entry(pair.to) || pair.cut) continue;
      if (most == nullptr || times(*site, pair) > times(*site, *most)) most = &pair;
    }
    if (most != nullptr) result.push_back({most->to.unit, times(*site, *most)});
  }
  return result;
}

}  // namespace tally::engine
