// Flips and cuts the bytes of procedures that a run has left for the next, with digests that fit:
// decoding must refuse them or come to something that can be emitted and solved, whatever it is.
//
// Build and run: tools/fuzz.py --only=found
// The seed is printed; the same seed repeats the run.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "../unit/found_support.h"
#include "fuzz_main.h"
#include "placement/placement.h"

namespace tally::engine {
namespace {

using Random = std::mt19937_64;
constexpr uint32_t kCode = 0x40000000, kCold = 0x50000000, kTables = 0x60000000;

std::vector<uint8_t> damaged(std::vector<uint8_t> bytes, Random& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  if (below(16) == 0) bytes.resize(below(bytes.size()));
  for (size_t flips = 1 + below(3); flips > 0 && !bytes.empty(); --flips) {
    uint8_t& byte = bytes[below(bytes.size())];
    byte = below(2) == 0 ? static_cast<uint8_t>(random())
                         : static_cast<uint8_t>(byte ^ 1u << below(8));
  }
  return bytes;
}

// As the code cache does it, with some blocks left out or not, and the rest after that.
void emit(KnownProcedure& known, const cfg::CodeView& view, bool defer) {
  if (!decode_instructions(view, defer ? Wanted::kBody : Wanted::kAll, known)) return;
  translate::Plan plan = known.plan;
  for (uint32_t i = 0; i < known.events.size(); ++i)
    plan.events.push_back({known.events[i].insn, i});
  translate::EmitRequest request;
  request.procedure = &known.procedure;
  request.plan = &plan;
  request.view = &view;
  request.tables_base = kTables;
  request.compare = translate::Compare::kLow32;
  request.defer = defer;
  std::vector<uint8_t> hot(4 << 20), cold(4 << 20);
  isa::Assembler hot_as(hot.data(), hot.size(), CacheAddr(kCode));
  isa::Assembler cold_as(cold.data(), cold.size(), CacheAddr(kCold));
  translate::UnitCode code = emit_unit(hot_as, cold_as, request);
  if (code.size_bytes == 0 || code.is_whole) return;
  if (!decode_instructions(view, Wanted::kAll, known)) return;
  const size_t used = (code.cold_bytes + 15u) & ~15u;
  isa::Assembler rest(cold.data() + used, cold.size() - used, CacheAddr(kCold + used));
  emit_rest(rest, request, code);
}

void solve(const KnownProcedure& known, Random& random) {
  const placement::Graph graph = make_graph(known.procedure);
  placement::Measured measured;
  measured.nodes.resize(graph.node_count);
  measured.edges.resize(graph.edges.size());
  for (size_t b = 0; b < known.plan.block_counter.size(); ++b) {
    if (known.plan.block_counter[b] != translate::kNoCounter) measured.nodes[b] = random() % 100;
  }
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const bool table = graph.edges[e].role == placement::EdgeRole::kMeasured;
    const bool counted =
        e < known.plan.edge_counter.size() && known.plan.edge_counter[e] != translate::kNoCounter;
    if (table || counted) measured.edges[e] = random() % 100;
  }
  (void)placement::propagate(graph, measured, {});
}

int fuzz(uint64_t iterations, uint64_t seed) {
  Random random(seed);
  Examples code("/proc/self/exe");
  Random always(7);  // the same examples for each seed
  const std::vector<Example> examples = code.make_all(600, always);
  const EdgeWeights weights = weights_of(examples, "00", true);
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    const Example& one = examples[random() % examples.size()];
    KnownProcedure known;
    if (!decode_found(damaged(body_of(one.known, 1), random), one.key, known)) continue;
    solve(known, random);
    emit(known, code.view(), random() % 2 == 0);
    (void)weights.find("00", known.procedure, shape_of(known.procedure));
    ++accepted;
  }
  std::printf("fuzz_found: %llu accepted, no crash\n", static_cast<unsigned long long>(accepted));
  return 0;
}

}  // namespace
}  // namespace tally::engine

int main(int argc, char** argv) {
  return tally::fuzz_main("fuzz_found", argc, argv, tally::engine::fuzz);
}
