// Flips and cuts the bytes of what a run has left for the next, with a digest that fits: decoding
// must return an error or a recollection whose weights can be looked up, and never crash or hang.
//
// Build and run: tools/fuzz.py --only=recall
// The seed is printed; the same seed repeats the run.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "cache/edge_weights.h"
#include "cache/plan.h"
#include "cache/recall.h"
#include "fuzz_main.h"

namespace tally::engine {
namespace {

using Random = std::mt19937_64;
constexpr size_t kDigestBytes = 8;

// Two ways on in each block but the last.
cfg::Procedure procedure_at(LinkAddr entry, uint32_t blocks) {
  cfg::Procedure p;
  p.entry = entry;
  p.range = {entry, entry + 16 * blocks};
  for (uint32_t b = 0; b < blocks; ++b) {
    cfg::Block block;
    block.offset = 16 * b;
    block.first_edge = static_cast<uint32_t>(p.edges.size());
    const bool last = b + 1 == blocks;
    if (last) p.edges.edit().push_back({b, cfg::kExitBlock, cfg::EdgeKind::kReturn, {}});
    if (!last) p.edges.edit().push_back({b, b / 2, cfg::EdgeKind::kTaken, {}});
    if (!last) p.edges.edit().push_back({b, b + 1, cfg::EdgeKind::kFallthrough, {}});
    block.edge_count = static_cast<uint32_t>(p.edges.size()) - block.first_edge;
    p.blocks.edit().push_back(block);
  }
  return p;
}

struct Original {
  std::vector<cfg::Procedure> procedures;
  std::vector<uint8_t> bytes;
};

Original original() {
  Original result;
  Recollection r;
  r.modules = {"0123abcd", "ff"};
  for (uint32_t i = 0; i < 12; ++i) {
    result.procedures.push_back(procedure_at(LinkAddr(0x1000 * (i + 1)), 1 + 30 * i));
    const cfg::Procedure& p = result.procedures.back();
    const auto edges = static_cast<uint32_t>(p.edges.size());
    r.asked.push_back({i % 2, 0, p.entry.value()});
    r.led.push_back({i % 2, 1, p.entry.value(), 0x2000});
    r.weighed.push_back({i % 2, shape_of(p), p.entry.value(), edges, 9, i % 3 == 0, i % 5});
    for (uint32_t e = 0; e < edges; ++e) r.steps.push_back(static_cast<uint8_t>(e % 7 * (e % 40)));
  }
  r.entered = {{1, 0x2345}};
  result.bytes = encode_recollection(r);
  return result;
}

// So that more than the digest stands in the way.
void put_digest(std::vector<uint8_t>& bytes) {
  if (bytes.size() < kDigestBytes) return;
  uint64_t digest = 0xcbf29ce484222325;
  for (size_t i = 0; i + kDigestBytes < bytes.size(); ++i) {
    digest = (digest ^ bytes[i]) * 0x100000001b3;
  }
  std::memcpy(bytes.data() + bytes.size() - kDigestBytes, &digest, kDigestBytes);
}

std::vector<uint8_t> damaged(std::vector<uint8_t> bytes, Random& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  if (below(8) == 0) bytes.resize(below(bytes.size()));
  for (size_t flips = below(4); flips > 0 && !bytes.empty(); --flips) {
    bytes[below(bytes.size())] = static_cast<uint8_t>(random());
  }
  put_digest(bytes);
  return bytes;
}

void use(Recollection& recollection, const std::vector<cfg::Procedure>& procedures) {
  const std::vector<std::string> modules = recollection.modules;
  const EdgeWeights weights(recollection);
  for (const cfg::Procedure& p : procedures) {
    for (const std::string& module : modules) {
      const EdgeWeights::Known known = weights.find(module, p, shape_of(p));
      uint32_t counters = 0;
      make_plan(p, {}, PlacementKind::kEdges, {{}, known.steps}, [&] { return counters++; });
      CHECK(counters > 0);
    }
  }
}

int fuzz(uint64_t iterations, uint64_t seed) {
  Random random(seed);
  const Original whole = original();
  uint64_t accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    Result<Recollection> decoded = decode_recollection(damaged(whole.bytes, random));
    if (!decoded) continue;
    use(*decoded, whole.procedures);
    ++accepted;
  }
  std::printf("fuzz_recall: %llu accepted, no crash\n", static_cast<unsigned long long>(accepted));
  return 0;
}

}  // namespace
}  // namespace tally::engine

int main(int argc, char** argv) {
  return tally::fuzz_main("fuzz_recall", argc, argv, tally::engine::fuzz);
}
