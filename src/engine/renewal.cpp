// See renewal.h.
#include "engine/renewal.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "cache/edge_weights.h"
#include "cache/inductions.h"

namespace tally::engine {

namespace {

constexpr auto kFirstLook = std::chrono::milliseconds(20);
constexpr int kPauseFactor = 2;
constexpr auto kPauseUnderStress = std::chrono::milliseconds(1);
// How often, and when, all threads stand still again if one was inside a procedure that is hot.
constexpr int kRetriesMax = 4;
constexpr auto kRetryAfter = std::chrono::milliseconds(2);
// How many returns and jumps may ask where things cannot be moved, until it is given up.
constexpr int kRefusedMax = 20;
// Later on, most of what is busy has been translated twice, and less of the run is left to gain by.
constexpr int kTimesToAsk = 3;
// Translating a procedure again costs the monitor some microseconds for each block.  What it gains
// is perhaps a tenth of what the procedure has yet to run, and that is taken to be as much as it
// has run already.  An increment stands for some nanoseconds of that.
constexpr uint64_t kIncrementsForUnit = 40'000;
constexpr uint64_t kIncrementsForBlock = 4'000;
// A call from or to a procedure whose returns are not paired, while others are, spoils the
// foretelling of a return besides.
constexpr uint64_t kFormerReturns = 4;
// Of all increments, what tells how hard returns are to foretell, and what is paired then.
constexpr uint64_t kTellingPart = 4096, kPairedPart = 65536;
// ... and what is sure to be run through soon.
constexpr uint64_t kBusyPart = 64;
// All is translated again when the program has run for so many times as long as translating took.
// All threads wait for it, half as long as that.  Of a large program, what there is to give back
// weighs more: whatever translating takes beyond that counts less.
constexpr int kTimesToCompact = 16, kTimesBeyond = 4;
constexpr auto kTranslatedForLong = std::chrono::milliseconds(250);
constexpr auto kTranslatedForMax = std::chrono::seconds(3);
// What no branch of has been executed more often, and that has counted nothing in the last quarter
// of the run, is over, as far as one can say.
constexpr uint64_t kSeldom = 128;
constexpr int kIdlePart = 4;

bool contains(const std::vector<uint32_t>& units, uint32_t unit) {
  return std::ranges::find(units, unit) != units.end();
}

// But for loops that a register counts, which are none.
uint64_t increments_of(const CodeCache& cache, const Unit& unit,
                       const std::vector<uint64_t>& counters) {
  uint64_t sum = 0;
  for (const auto* ids : {&unit.plan.block_counter, &unit.plan.edge_counter}) {
    for (const int32_t id : *ids) {
      const bool counts = id >= 0 && !cache.is_induced(static_cast<size_t>(id));
      if (counts) sum += counters[static_cast<size_t>(id)];
    }
  }
  return sum;
}

// How many branches a unit has taken.
uint64_t branches_of(const Unit& unit, const placement::Solution& solution) {
  uint64_t sum = 0;
  for (uint32_t b = 0; b < unit.procedure.blocks.size(); ++b) {
    const cfg::Block& block = unit.procedure.blocks[b];
    switch (block.end) {
      case isa::Flow::kConditional:
      case isa::Flow::kCountedJump:
        sum += solution.edges[block.first_edge].value;
        break;
      case isa::Flow::kJump:
      case isa::Flow::kIndirectJump:
        sum += solution.nodes[b].value;
        break;
      default:
        break;
    }
  }
  return sum;
}

}  // namespace

void Renewals::begin(bool always) {
  always_ = always;
  pause_ = kFirstLook;
  begun_ = Clock::now();
  next_look_ = regular_look_ = begun_ + pause_;
}

std::vector<uint64_t> Renewals::counters(uint32_t slots) const {
  std::vector<uint64_t> result(cache_.counters_used(), 0);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    region_.for_each_counter(slot, result.size(),
                             [&](size_t counter, uint64_t value) { result[counter] += value; });
  }
  // What a thread has taken that is in such a loop makes no number of runs, or a wrong one.
  for (const auto& [counter, step] : cache_.induced_steps()) {
    result[counter] = runs_of_loop(result[counter], step).value_or(0);
  }
  return result;
}

std::vector<uint32_t> Renewals::worthwhile(const std::vector<uint64_t>& counters) const {
  std::vector<uint32_t> result;
  for (const auto& unit : cache_.units()) {
    if (!cache_.is_renewable(unit->id)) continue;
    uint64_t wanted = kIncrementsForUnit + kIncrementsForBlock * unit->procedure.blocks.size();
    if (cache_.has_former_returns(*unit)) wanted /= kFormerReturns;
    const uint64_t increments = increments_of(cache_, *unit, counters);
    if (increments >= wanted || (always_ && increments > 0)) result.push_back(unit->id);
  }
  return result;
}

std::vector<uint32_t> Renewals::movable() const {
  std::vector<uint32_t> result;
  for (const auto& unit : cache_.units()) {
    if (cache_.is_movable(unit->id)) result.push_back(unit->id);
  }
  return result;
}

std::vector<uint32_t> Renewals::wanted(const std::vector<uint64_t>& counters) {
  // Meanwhile the program may have begun to filter its system calls.
  compacts_ = compacts_ && cache_.may_compact();
  return compacts_ ? movable() : worthwhile(counters);
}

bool Renewals::is_time_to_compact(Clock::time_point now) {
  if (!cache_.may_compact()) return false;
  // Now and then, ever more seldom.
  if (always_) return std::popcount(++looks_) == 1 && looks_ >= 8;
  if (cache_.weights() != nullptr) return false;
  if (3 * (cache_.stats().code_bytes - made_bytes_) < living_bytes_) return false;
  Clock::duration spent{};
  for (const Phase phase : {Phase::kDiscover, Phase::kPlace, Phase::kEmit, Phase::kLink}) {
    spent += phases_.spent(phase);
  }
  if (spent > kTranslatedForMax) return false;
  const auto time_for = [](Clock::duration translating) {
    const Clock::duration beyond =
        std::max<Clock::duration>(translating - kTranslatedForLong, Clock::duration::zero());
    return kTimesToCompact * (translating - beyond) + kTimesBeyond * beyond;
  };
  if (now - begun_ >= time_for(spent)) return true;
  // By then somewhat more will have been translated.
  constexpr int kLaterPart = 32;
  next_look_ = std::min(next_look_, begun_ + time_for(spent + spent / kLaterPart));
  return false;
}

bool Renewals::look(Clock::time_point now, Company company, uint32_t slots) {
  if (now < next_look_) return false;
  const PhaseTimer timer(phases_, Phase::kRenew);
  const bool is_regular = now >= regular_look_;
  if (is_regular) {
    const bool often = always_ && company == Company::kThreads;
    pause_ = often ? kPauseUnderStress : pause_ * kPauseFactor;
    regular_look_ = now + pause_;
    retries_ = 0;
  }
  next_look_ = regular_look_;
  if (company == Company::kUnknown) {
    next_look_ = Clock::time_point::max();
    return false;
  }
  if (waiting_ || cache_.is_about_to_number()) return false;
  const std::vector<uint64_t> counted = counters(slots);
  // Later runs give nothing back: nobody would ask what was over.
  if (is_regular && cache_.weights() == nullptr) note_counted(now, counted);
  std::vector<uint32_t> hot = worthwhile(counted);
  compacts_ = is_time_to_compact(now);
  cache_.expect_to_compact(compacts_);
  if (hot.empty() && !compacts_) return false;
  if (compacts_) {
    hot = busy(counted, kBusyPart);
    std::erase_if(hot, [this](uint32_t unit) { return cache_.unit(unit).dead; });
  }
  waiting_ = true;
  refused_ = 0;
  cache_.hold(hot);
  resting_ = company == Company::kThreads;
  if (resting_) asked_at_ = now;
  return resting_;
}

void Renewals::note_counted(Clock::time_point now, const std::vector<uint64_t>& counters) {
  earlier_ = std::exchange(later_, {now, {}});
  for (const auto& unit : cache_.units()) {
    later_.increments.push_back(increments_of(cache_, *unit, counters));
  }
}

// Those that have counted nothing in the last quarter of the run, or more, since which they have
// been there.  Under stress, some.
std::vector<bool> Renewals::idle_units(const std::vector<uint64_t>& counters) const {
  std::vector<bool> result(cache_.units().size(), false);
  const Clock::time_point now = Clock::now();
  const bool is_long_ago = (now - later_.at) * kIdlePart >= now - begun_;
  const std::vector<uint64_t>& before = (is_long_ago ? later_ : earlier_).increments;
  for (const auto& unit : cache_.units()) {
    const uint32_t id = unit->id;
    if (always_) {
      result[id] = id % 2 == 0;
    } else if (id < before.size()) {
      result[id] = before[id] == increments_of(cache_, *unit, counters);
    }
  }
  return result;
}

void Renewals::end_rest() {
  if (std::exchange(giver_, std::nullopt)) cache_.stop_giving_back();
  if (!resting_) return;
  resting_ = false;
  if (waiting_) cache_.release();
  waiting_ = false;
  if (!always_) return;
  // Where threads come to rest late, those that are under stress would do little else.
  const Clock::time_point now = Clock::now();
  regular_look_ = std::max(regular_look_, now + (now - asked_at_));
  next_look_ = std::max(next_look_, regular_look_);
}

std::optional<Renewals::Solved> Renewals::solve(const UnitFlows& flows, uint32_t id,
                                                const std::vector<BlockRef>& open) const {
  const Unit& unit = cache_.unit(id);
  if (flows.is_begun_inside(unit) || unit.left_to_callers()) return std::nullopt;
  UnitEquations equations = flows.equations_of(unit);
  for (const BlockRef& call : open) {
    if (call.unit == id) equations.abnormal.push_back({call.block, 0, 1});
  }
  auto solution = placement::propagate(equations.graph, equations.measured, equations.abnormal);
  if (!solution || !solution->balanced()) return std::nullopt;
  return Solved{id, std::move(*solution)};
}

std::vector<Renewals::Solved> Renewals::solve(const UnitFlows& flows,
                                              const std::vector<uint32_t>& units,
                                              const std::vector<BlockRef>& open) const {
  std::vector<Solved> result;
  for (const uint32_t id : units) {
    if (auto solved = solve(flows, id, open)) result.push_back(std::move(*solved));
  }
  return result;
}

// With what has run of each edge; nothing where that is no reason to translate the unit again.
std::optional<Renewal> Renewals::weighed(const Solved& solved) const {
  const Unit& unit = cache_.unit(solved.unit);
  const std::vector<uint64_t> counts = counts_of_edges(unit.procedure, solved.solution);
  // Without edges, all that is known is how often the one block has run.
  const uint64_t only = solved.solution.nodes[0].value;
  const auto [lightest, heaviest] = counts.empty()
                                        ? std::ranges::minmax_result<uint64_t>{only, only}
                                        : std::ranges::minmax(counts);
  const bool nothing_to_choose_by = lightest == heaviest;
  if (!compacts_ && nothing_to_choose_by && !cache_.has_former_returns(unit)) return std::nullopt;
  Renewal renewal{solved.unit, heaviest, {}};
  append_steps(counts, heaviest, renewal.steps);
  return renewal;
}

// Units stand for procedures and their entries, the first for all those of a procedure.
CallsMade Renewals::calls_of(const std::vector<Solved>& solved, const UnitFlows& flows,
                             const std::vector<uint64_t>& counters) const {
  const auto first_of = [&](uint32_t unit) {
    while (cache_.unit(unit).renews) unit = *cache_.unit(unit).renews;
    return unit;
  };
  struct Way {
    uint32_t from, block, to;
    auto operator<=>(const Way&) const = default;
  };
  std::map<Way, uint64_t> times;
  CallsMade made;
  made.entries = cache_.units().size();
  made.branches.assign(made.entries, 0);
  for (const auto& [id, solution] : solved) {
    const Unit& unit = cache_.unit(id);
    const uint32_t from = first_of(id);
    for (const translate::Link& link : unit.code.links) {
      if (link.edge != translate::Link::kCallLink) continue;
      const BlockRef to = cache_.block_at(unit.module->to_target(link.target));
      if (!to.valid()) continue;
      times[{from, link.block, first_of(to.unit)}] += solution.nodes[link.block].value;
    }
    for (const SiteState* site : flows.sites_of(unit)) {
      if (!site->site.call) continue;
      uint64_t rest = solution.nodes[site->site.block].value;
      for (const Pair& pair : site->pairs) {
        const uint64_t led = pair.rest ? 0 : counters[pair.counter];
        times[{from, site->site.block, first_of(pair.to.unit)}] += led;
        rest -= std::min(rest, led);
      }
      if (!site->rest) continue;
      times[{from, site->site.block, first_of(site->pairs[*site->rest].to.unit)}] += rest;
    }
    made.branches[from] += static_cast<double>(branches_of(unit, solution));
  }
  for (const auto& [way, count] : times) {
    if (count > 0) made.calls.push_back({way.from, way.to, way.to, static_cast<double>(count)});
  }
  return made;
}

// Those that have counted at least a `part`-th of all that was counted.
std::vector<uint32_t> Renewals::busy(const std::vector<uint64_t>& counters, uint64_t part) const {
  std::vector<std::pair<uint32_t, uint64_t>> counted;
  uint64_t total = 0;
  for (const auto& unit : cache_.units()) {
    const uint64_t increments = increments_of(cache_, *unit, counters);
    if (increments == 0) continue;
    counted.emplace_back(unit->id, increments);
    total += increments;
  }
  std::vector<uint32_t> result;
  for (const auto& [unit, increments] : counted) {
    if (increments >= total / part) result.push_back(unit);
  }
  return result;
}

// Whether returns are so hard to foretell, as far as one can say by now, that calls had better be
// paired with them.
bool Renewals::asks_for_pairs(const std::vector<Solved>& solved, const UnitFlows& flows,
                              const std::vector<uint64_t>& counters) const {
  constexpr uint64_t kIncrementsForCall = 20;  // where there are fewer calls they do not matter
  uint64_t increments = 0;
  for (const Solved& one : solved) {
    increments += increments_of(cache_, cache_.unit(one.unit), counters);
  }
  const Recollection::Returns returns = measure_returns(calls_of(solved, flows, counters));
  return returns.calls * kIncrementsForCall >= increments && are_hard(returns);
}

// Pairs calls and returns in whatever is translated from now on, if that is better.
std::vector<uint32_t> Renewals::pair_returns(const UnitFlows& flows, std::vector<uint32_t> units,
                                             const std::vector<BlockRef>& open,
                                             const std::vector<uint64_t>& counters) {
  if (!cache_.has_room_for_pieces()) return units;
  if (always_) {
    if (cache_.stats().renewed == 0) return units;  // so that some are translated a third time
  } else {
    ++asked_for_pairs_;
    const std::vector<uint32_t> telling = busy(counters, kTellingPart);
    if (!asks_for_pairs(solve(flows, telling, open), flows, counters)) return units;
  }
  cache_.pair_returns();
  for (const uint32_t unit : busy(counters, kPairedPart)) {
    if (!contains(units, unit) && cache_.is_renewable(unit)) units.push_back(unit);
  }
  return units;
}

void Renewals::at_request(Ledger::Way way, const elf::UnwindRegisters& there, bool alone) {
  if (resting_) return;  // one that could not be held back
  const PhaseTimer timer(phases_, Phase::kRenew);
  std::optional<std::vector<BlockRef>> open;
  if (alone) open = ledger_.open_calls(0, way, there);
  if (alone && !open && waiting_ && ++refused_ < kRefusedMax) return;
  if (waiting_) cache_.release();
  waiting_ = false;
  if (!open) return;
  if (always_ && !compacts_) compacts_ = is_time_to_compact(Clock::now());
  Still still{1, *open, {}, counters(1), gives_numbers()};
  std::vector<uint32_t> units = wanted(still.counters);
  if (units.empty()) return;
  translate_again(std::move(units), still);
  ledger_.hand_over(0, *open);
}

// Under stress, to all in turn with those for which there is memory.
CodeCache::GiveNumbers Renewals::gives_numbers() const {
  const bool to_all = always_ && cache_.stats().compactions % 2 == 0;
  return to_all ? CodeCache::GiveNumbers::kAnewToAll : CodeCache::GiveNumbers::kAnew;
}

void Renewals::at_rest(std::span<const Standing> threads, uint32_t slots,
                       std::optional<uint32_t> giver) {
  const PhaseTimer timer(phases_, Phase::kRenew);
  end_rest();
  Still still{slots, {}, {}, counters(slots), CodeCache::GiveNumbers::kKept};
  if (giver) still.numbers = gives_numbers();
  for (const Standing& thread : threads) {
    still.open.insert(still.open.end(), thread.open.begin(), thread.open.end());
    if (thread.inside) still.occupied.push_back(*thread.inside);
    // Who is between two units may be anywhere.
    if (!thread.inside && !thread.is_held_back) compacts_ = false;
  }
  std::vector<uint32_t> units = wanted(still.counters);
  if (units.empty()) return;
  const bool is_left_out = std::ranges::any_of(
      worthwhile(still.counters), [&](uint32_t unit) { return contains(still.occupied, unit); });
  translate_again(std::move(units), still);
  for (const Standing& thread : threads) ledger_.hand_over(thread.slot, thread.open);
  if (cache_.gives_back_at_rest()) giver_ = giver;
  if (is_left_out) retry();
}

// Threads are elsewhere soon, most of them.
void Renewals::retry() {
  if (++retries_ > kRetriesMax) return;
  next_look_ = std::min(next_look_, Clock::now() + kRetryAfter);
}

void Renewals::translate_again(std::vector<uint32_t> units, const Still& still) {
  const std::vector<uint64_t>& now = still.counters;
  const UnitFlows flows(cache_, ledger_, now);
  if (cache_.may_pair_returns() && asked_for_pairs_ < kTimesToAsk) {
    units = pair_returns(flows, std::move(units), still.open, now);
  }
  std::erase_if(units, [&](uint32_t unit) { return contains(still.occupied, unit); });
  // One after the other: of a large program, all solutions at once take tens of megabytes.
  std::vector<Renewal> renewals;
  for (const uint32_t unit : units) {
    const std::optional<Solved> solved = solve(flows, unit, still.open);
    std::optional<Renewal> renewal = solved ? weighed(*solved) : std::nullopt;
    if (renewal) renewals.push_back(std::move(*renewal));
  }
  cache_.expect_to_compact(false);
  if (!std::exchange(compacts_, false)) return cache_.renew(renewals, now);
  const std::vector<uint32_t> hot = worthwhile(now);
  const std::vector<bool> is_idle = idle_units(now);
  for (Renewal& one : renewals) {
    one.for_now = !contains(hot, one.unit);
    const bool is_open =
        std::ranges::find(still.open, one.unit, &BlockRef::unit) != still.open.end();
    one.is_over = is_idle[one.unit] && one.heaviest < kSeldom && !is_open;
  }
  const uint64_t before = cache_.stats().code_bytes;
  cache_.compact(std::move(renewals), now, still.slots, still.numbers);
  made_bytes_ = cache_.stats().code_bytes;
  living_bytes_ = made_bytes_ - before;
}

}  // namespace tally::engine
