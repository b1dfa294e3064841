// See counter_numbers.h.
#include "cache/counter_numbers.h"

#include <algorithm>

#include "base/check.h"
#include "cache/edge_weights.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::engine {

namespace {

using translate::counter_offset;

constexpr uint32_t kPageBytes = 4096;
constexpr uint32_t kCalm = translate::tcb::kCalmEnd / 8;
// Behind what a page has for counters.
constexpr uint32_t kKeptFree = kPageBytes / 8 - translate::tcb::kHotSlots / 8;
constexpr uint32_t kUsable = CounterNumbers::kPageCounters - kKeptFree;
static_assert(counter_offset(0) % kPageBytes == 0 && kUsable > kCalm);

// A page of them.
constexpr uint32_t kSeldomAmongOthers = kUsable;

// Bits of a count from which on a counter is busy, and below which it counts seldom.
constexpr uint32_t kBusyBits = 14, kBusiestBits = 17;
constexpr uint32_t kSomeBits = 8;

}  // namespace

std::vector<CounterNumbers::Range>& CounterNumbers::free_for(Expected expected) {
  switch (expected) {
    case Expected::kIdle:
      return idle_.free;
    case Expected::kSeldom:
      return seldom_.free;
    case Expected::kSome:
      return others_.free;
    case Expected::kBusy:
      break;
  }
  return busy_;
}

uint32_t CounterNumbers::next_page(Kind& kind) {
  if (kind.unbegun.begin == kind.unbegun.end) {
    kind.unbegun = {pages_, pages_ + kind.group};
    pages_ += kind.group;
    kind.group = std::min(2 * kind.group, kGroupMax);
  }
  return kind.unbegun.begin++;
}

void CounterNumbers::begin_page(Expected expected) {
  if (expected == Expected::kIdle || expected == Expected::kSeldom) {
    Kind& kind = expected == Expected::kIdle ? idle_ : seldom_;
    const uint32_t first = next_page(kind) * kPageCounters;
    kind.free.push_back({first, first + kUsable});
    return;
  }
  const uint32_t first = next_page(others_) * kPageCounters;
  if (expected == Expected::kSome) {
    others_.free.push_back({first, first + kUsable});
    return;
  }
  busy_.push_back({first + kCalm, first + kUsable});
  others_.free.push_back({first, first + kCalm});
}

void CounterNumbers::begin_again() {
  const uint32_t pages = pages_;
  *this = CounterNumbers();
  pages_ = pages;
}

uint32_t CounterNumbers::take(Expected expected) {
  if (expected == Expected::kSeldom && seldom_among_others_ < kSeldomAmongOthers) {
    ++seldom_among_others_;
    expected = Expected::kSome;
  }
  std::vector<Range>& from = free_for(expected);
  if (from.empty()) begin_page(expected);
  Range& range = from.back();
  const uint32_t number = range.begin++;
  if (range.begin == range.end) from.pop_back();
  return number;
}

ExpectedCounts expected_counts(const cfg::Procedure& procedure, const translate::Plan& plan,
                               uint32_t counters, std::span<const uint8_t> steps,
                               uint32_t heaviest_bits) {
  CHECK(steps.size() == procedure.edges.size()) << steps.size() << " steps";
  // Of a count's bits, from its step below the heaviest.
  const auto of_step = [&](uint32_t step) {
    if (step == 0) return Expected::kIdle;
    if (heaviest_bits >= kBusyBits + halvings(step)) return Expected::kBusy;
    return heaviest_bits >= kSomeBits + halvings(step) ? Expected::kSome : Expected::kSeldom;
  };
  // A block with no edges but to the caller runs as often as the procedure is called.
  constexpr uint8_t kUnknown = UINT8_MAX;
  std::vector<uint8_t> heaviest(procedure.blocks.size(), 0);
  std::vector<bool> has_edge(procedure.blocks.size(), false);
  const auto see = [&](uint32_t block, uint8_t step) {
    heaviest[block] = std::max(heaviest[block], step);
    has_edge[block] = true;
  };
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    see(edge.from, steps[e]);
    if (edge.to != cfg::kExitBlock) see(edge.to, steps[e]);
  }
  ExpectedCounts result;
  result.counters.assign(counters, Expected::kSome);
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    const uint8_t step = has_edge[b] ? heaviest[b] : kUnknown;
    const Expected expected = of_step(step);
    const auto mark = [&](Expected which, std::vector<bool>& blocks) {
      if (expected != which) return;
      blocks.resize(procedure.blocks.size());
      blocks[b] = true;
    };
    mark(Expected::kBusy, result.busy_blocks);
    if (expected == Expected::kBusy && heaviest_bits >= kBusiestBits + halvings(step)) {
      result.busiest_blocks.resize(procedure.blocks.size());
      result.busiest_blocks[b] = true;
    }
    mark(Expected::kSeldom, result.seldom_blocks);
    const int32_t counter = plan.block_counter[b];
    if (counter != translate::kNoCounter) result.counters[static_cast<size_t>(counter)] = expected;
  }
  std::vector<uint8_t> most_led(procedure.blocks.size(), 0);
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (edge.kind != cfg::EdgeKind::kTableJump || of_step(steps[e]) != Expected::kBusy) continue;
    if (steps[e] <= most_led[edge.to]) continue;
    most_led[edge.to] = steps[e];
    result.led_from.resize(procedure.blocks.size(), translate::EmitRequest::kNotLed);
    result.led_from[edge.to] = edge.from;
  }
  result.idle_edges.resize(procedure.edges.size());
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    result.idle_edges[e] = steps[e] == 0;
    const int32_t counter = plan.edge_counter[e];
    if (counter != translate::kNoCounter) {
      result.counters[static_cast<size_t>(counter)] = of_step(steps[e]);
    }
  }
  return result;
}

}  // namespace tally::engine
