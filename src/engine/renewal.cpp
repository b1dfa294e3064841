// See renewal.h.
#include "engine/renewal.h"

#include <algorithm>

#include "cache/edge_weights.h"

namespace tally::engine {

using translate::kNoCounter;

namespace {

constexpr auto kFirstLook = std::chrono::milliseconds(20);
constexpr int kPauseFactor = 2;
// How many returns and jumps may ask where things cannot be moved, until it is given up.
constexpr int kRefusedMax = 20;
// Translating a procedure again costs the monitor some microseconds for each block.  What it gains
// is perhaps a tenth of what the procedure has yet to run, and that is taken to be as much as it
// has run already.  An increment stands for some nanoseconds of that.
constexpr uint64_t kIncrementsForUnit = 40'000;
constexpr uint64_t kIncrementsForBlock = 4'000;

uint64_t increments_of(const Unit& unit, const std::vector<uint64_t>& counters) {
  uint64_t sum = 0;
  for (const auto* ids : {&unit.plan.block_counter, &unit.plan.edge_counter}) {
    for (const int32_t id : *ids) {
      if (id != kNoCounter) sum += counters[static_cast<size_t>(id)];
    }
  }
  return sum;
}

}  // namespace

void Renewals::begin(bool always) {
  always_ = always;
  pause_ = kFirstLook;
  next_look_ = Clock::now() + pause_;
}

std::vector<uint64_t> Renewals::counters() const {
  std::vector<uint64_t> result(cache_.counters_used(), 0);
  region_.for_each_counter(0, result.size(),
                           [&](size_t counter, uint64_t value) { result[counter] = value; });
  return result;
}

std::vector<uint32_t> Renewals::worthwhile(const std::vector<uint64_t>& counters) const {
  std::vector<uint32_t> result;
  for (const auto& unit : cache_.units()) {
    if (!cache_.is_renewable(unit->id)) continue;
    const uint64_t wanted =
        kIncrementsForUnit + kIncrementsForBlock * unit->procedure.blocks.size();
    const uint64_t increments = increments_of(*unit, counters);
    if (increments >= wanted || (always_ && increments > 0)) result.push_back(unit->id);
  }
  return result;
}

void Renewals::look(Clock::time_point now, bool alone) {
  if (now < next_look_) return;
  const PhaseTimer timer(phases_, Phase::kRenew);
  pause_ *= kPauseFactor;
  next_look_ = now + pause_;
  if (!alone) {
    next_look_ = Clock::time_point::max();
    return;
  }
  if (waiting_) return;
  const std::vector<uint32_t> hot = worthwhile(counters());
  if (hot.empty()) return;
  waiting_ = true;
  refused_ = 0;
  cache_.hold(hot);
}

// With what has run of each edge.
std::vector<CodeCache::Renewal> Renewals::weighed(const std::vector<uint32_t>& units,
                                                  const std::vector<BlockRef>& open,
                                                  const std::vector<uint64_t>& counters) const {
  const UnitFlows flows(cache_, ledger_, counters);
  std::vector<CodeCache::Renewal> result;
  for (const uint32_t id : units) {
    const Unit& unit = cache_.unit(id);
    if (flows.is_begun_inside(unit)) continue;
    UnitEquations equations = flows.equations_of(unit);
    for (const BlockRef& call : open) {
      if (call.unit == id) equations.abnormal.push_back({call.block, 0, 1});
    }
    const auto solution =
        placement::propagate(equations.graph, equations.measured, equations.abnormal);
    if (!solution || !solution->balanced()) continue;
    const std::vector<uint64_t> counts = counts_of_edges(unit.procedure, *solution);
    if (counts.empty()) continue;
    const auto [lightest, heaviest] = std::ranges::minmax(counts);
    if (lightest == heaviest) continue;  // nothing to choose by
    CodeCache::Renewal one{id, {}};
    append_steps(counts, heaviest, one.steps);
    result.push_back(std::move(one));
  }
  return result;
}

void Renewals::at_request(Ledger::Way way, const elf::UnwindRegisters& there, bool alone) {
  const PhaseTimer timer(phases_, Phase::kRenew);
  std::optional<std::vector<BlockRef>> open;
  if (alone) open = ledger_.open_calls(0, way, there);
  if (alone && !open && waiting_ && ++refused_ < kRefusedMax) return;
  if (waiting_) cache_.release();
  waiting_ = false;
  if (!open) return;
  const std::vector<uint64_t> now = counters();
  const std::vector<uint32_t> units = worthwhile(now);
  if (units.empty()) return;
  cache_.renew(weighed(units, *open, now), now);
  ledger_.hand_over(0, *open);
}

}  // namespace tally::engine
