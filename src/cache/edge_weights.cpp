// See edge_weights.h.
#include "cache/edge_weights.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/mix.h"

namespace tally::engine {

namespace {

constexpr uint8_t kHeaviestStep = 255;

// Whether anything ran that had never run before.
bool strays(std::span<const uint64_t> counts, std::span<const uint8_t> steps) {
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] != 0 && steps[e] == 0) return true;
  }
  return false;
}

// Out of the procedure, those that call included, and how often they were taken.
std::vector<EntryCallers::Branch> branches_of(const Unit& unit,
                                              const placement::Solution& solution) {
  std::vector<EntryCallers::Branch> result;
  const SharedVector<cfg::Edge>& edges = unit.procedure.edges;
  for (size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].kind != cfg::EdgeKind::kLeave) continue;
    result.push_back({edges[e].target.value(), solution.edges[e].value});
  }
  for (const translate::Link& link : unit.code.links) {
    if (link.edge != translate::Link::kCallLink) continue;
    result.push_back({link.target.value(), solution.nodes[link.block].value});
  }
  return result;
}

// Grows with the count: its power of two, and the 16th of the way to the next.
uint32_t sixteenths_of_octave(uint64_t count) {
  constexpr unsigned kMantissaBits = 52, kKeptBits = 4;
  const auto bits = std::bit_cast<uint64_t>(static_cast<double>(count));
  return static_cast<uint32_t>(bits >> (kMantissaBits - kKeptBits));
}

}  // namespace

uint32_t shape_of(const cfg::Procedure& procedure) {
  uint64_t state = mix(procedure.blocks.size(), procedure.edges.size());
  for (const cfg::Block& block : procedure.blocks) {
    state = mix(state, procedure.address_of(block).value());
  }
  for (const cfg::Edge& edge : procedure.edges) {
    const uint64_t to = edge.to == cfg::kExitBlock ? ~edge.target.value() : edge.to;
    const auto kind = static_cast<uint64_t>(edge.kind);
    state = mix(state, to ^ static_cast<uint64_t>(edge.from) << 32 ^ kind << 24);
  }
  return static_cast<uint32_t>(state);
}

void append_steps(std::span<const uint64_t> counts, uint64_t heaviest, std::vector<uint8_t>& out) {
  const uint32_t top = sixteenths_of_octave(heaviest);
  for (const uint64_t count : counts) {
    const uint32_t below = count == 0 ? kHeaviestStep : top - sixteenths_of_octave(count);
    const uint32_t step = kHeaviestStep - std::min<uint32_t>(below, kHeaviestStep);
    out.push_back(static_cast<uint8_t>(count == 0 ? 0 : std::max(step, 1u)));
  }
}

EdgeWeights::EdgeWeights(Recollection& recollection)
    : weighed_(std::exchange(recollection.weighed, {})),
      steps_(std::exchange(recollection.steps, {})) {
  std::vector<FlatMap<uint32_t>*> by_module;
  for (const std::string& id : recollection.modules) by_module.push_back(&by_entry_[id]);
  first_.reserve(weighed_.size());
  uint64_t first = 0;
  for (uint32_t i = 0; i < weighed_.size(); ++i) {
    const Recollection::Weighed& one = weighed_[i];
    first_.push_back(first);
    has_ranks_ = has_ranks_ || one.rank != 0;
    first += one.edges;
    CHECK(first <= steps_.size()) << "edges without a step";
    if (one.entry != ~0ull) by_module[one.module]->set(one.entry, i);
  }
}

EdgeWeights::Known EdgeWeights::find(const std::string& build_id, const cfg::Procedure& procedure,
                                     uint32_t shape) const {
  const auto module = by_entry_.find(build_id);
  if (module == by_entry_.end() || procedure.entry.value() == ~0ull) return {};
  const uint32_t* index = module->second.find(procedure.entry.value());
  if (index == nullptr) return {};
  const Recollection::Weighed& one = weighed_[*index];
  if (one.edges != procedure.edges.size() || one.shape != shape) return {};
  return {&one, std::span(steps_).subspan(first_[*index], one.edges)};
}

uint64_t EdgeWeights::times_run(const std::string& build_id, LinkAddr entry) const {
  const auto module = by_entry_.find(build_id);
  if (module == by_entry_.end() || entry.value() == ~0ull) return 0;
  const uint32_t* index = module->second.find(entry.value());
  return index == nullptr ? 0 : 1ull << (weighed_[*index].heaviest_bits - 1u);
}

std::vector<uint64_t> counts_of_edges(const cfg::Procedure& procedure,
                                      const placement::Solution& solution) {
  std::vector<uint64_t> result;
  result.reserve(procedure.edges.size());
  bool has_table = false;
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    result.push_back(solution.edges[e].value);
    has_table = has_table || procedure.edges[e].kind == cfg::EdgeKind::kTableJump;
  }
  if (!has_table) return result;
  std::vector<uint64_t> by_edges(procedure.blocks.size(), 0);
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (edge.to != cfg::kExitBlock) by_edges[edge.to] += result[e];
  }
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (edge.kind != cfg::EdgeKind::kTableJump) continue;
    const uint64_t all = solution.nodes[edge.to].value;
    result[e] = all - std::min(all, by_edges[edge.to]);
  }
  return result;
}

void WeightsToLeave::add(const Unit& unit, const placement::Solution& solution,
                         const std::vector<LedMost>& led) {
  if (unit.id >= left_.module_of.size() || !left_.module_of[unit.id]) return;
  const cfg::Procedure& procedure = unit.procedure;
  const std::vector<uint64_t> counts = counts_of_edges(procedure, solution);
  double sum = 0;
  for (const uint64_t count : counts) sum += static_cast<double>(count);
  Recollection& what = left_.what;
  const uint32_t module = *left_.module_of[unit.id];
  const uint32_t shape = shape_of(procedure);
  EdgeWeights::Known known;
  if (before_ != nullptr) known = before_->find(what.modules[module], procedure, shape);
  uint64_t heaviest = 0;
  for (const uint64_t count : counts) heaviest = std::max(heaviest, count);
  // Entries, and ways of indirect jumps, tell how often a slot of a linkage table has run.
  uint64_t most = heaviest;
  for (const placement::Count& count : solution.edges) most = std::max(most, count.value);
  if (most == 0 && known.weighed == nullptr) return;
  const auto bits = static_cast<uint8_t>(std::bit_width(most));
  const uint8_t known_bits = known.weighed == nullptr ? 0 : known.weighed->heaviest_bits;
  total_ += sum;
  if (known_bits == 0 || bits >= known_bits + kBitsThatMatter) fresh_ += sum;
  if (what.steps.size() + counts.size() > Recollection::kStepsMax) return;
  const bool was_confirmed = known.weighed != nullptr && known.weighed->confirmed;
  const bool as_known = known.weighed != nullptr && !strays(counts, known.steps);
  const bool confirmed = most == 0 ? was_confirmed : as_known;
  if (most != 0) ran_ += 1;
  if (confirmed != was_confirmed) turned_ += 1;
  what.weighed.push_back({module, shape, procedure.entry.value(),
                          static_cast<uint32_t>(counts.size()), std::max(bits, known_bits),
                          confirmed, 0});
  const bool stays = !unit.replaceable && !unit.open_calls && !unit.checked;
  const bool leads_on = procedure.blocks[procedure.entry_block].end == isa::Flow::kIndirectJump;
  const bool plain = (!procedure.edges.empty() || leads_on) && unit.plan.events.empty();
  const uint64_t entries = solution.edges[procedure.edges.size()].value;
  callers_.add(module, procedure.entry.value(), stays && plain, entries,
               branches_of(unit, solution));
  weighed_as_.resize(std::max<size_t>(weighed_as_.size(), unit.id + size_t{1}), 0);
  weighed_as_[unit.id] = static_cast<uint32_t>(what.weighed.size());
  for (const LedMost& to : led) led_.push_back({weighed_as_[unit.id] - 1, to});
  // Those that are known stay where others are no better: what was placed by them is known, too.
  if (bits > known_bits || (bits == known_bits && !as_known)) {
    append_steps(counts, heaviest, what.steps);
  } else {
    what.steps.insert(what.steps.end(), known.steps.begin(), known.steps.end());
  }
}

void WeightsToLeave::settle() {
  for (const Led& led : led_) {
    const uint32_t to = led.to.unit < weighed_as_.size() ? weighed_as_[led.to.unit] : 0;
    if (to != 0) callers_.lead(led.from, to - 1, led.to.times);
  }
  const std::vector<uint32_t> ranks = callers_.ranks();
  CHECK(ranks.size() == left_.what.weighed.size()) << "weights of " << ranks.size();
  for (size_t i = 0; i < ranks.size(); ++i) left_.what.weighed[i].rank = ranks[i];
}

}  // namespace tally::engine
