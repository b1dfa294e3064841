// Totals by weighted counters against totals counted one by one: random procedures are run at
// random, some runs end in the middle, and the sum of counters times weights must be what ran.
#include "ledger/instruction_weights.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <span>

#include "cache/plan.h"

namespace {

using namespace tally;
using namespace tally::engine;
using translate::kNoCounter;

// Of which nobody can tell what it makes likely.
constexpr std::array<uint8_t, isa::kInsnBytesMax> kCode{};

// Units that nobody has translated.
class Made : public Translated {
 public:
  Unit& add(cfg::Procedure procedure, PlacementKind placement) {
    auto unit = std::make_unique<Unit>();
    unit->id = static_cast<uint32_t>(units_.size());
    unit->procedure = std::move(procedure);
    cfg::CodeView view;
    view.code_at = [](LinkAddr) { return std::span(kCode); };
    unit->plan =
        make_plan(unit->procedure, view, placement, {}, [this] { return next_counter_++; });
    unit->code.blocks.resize(unit->procedure.blocks.size());
    units_.push_back(std::move(unit));
    return *units_.back();
  }
};

// Blocks in a row, each with one or two ways on, forwards or back; the last one returns.
cfg::Procedure random_procedure(std::mt19937& random) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  cfg::Procedure p;
  const uint32_t count = 2 + below(7);
  for (uint32_t b = 0; b < count; ++b) {
    cfg::Block block;
    block.offset = 16 * b;
    block.size_bytes = 16;
    block.first_insn = static_cast<uint32_t>(p.insns.size());
    block.insn_count = 1 + below(9);
    for (uint32_t i = 0; i < block.insn_count; ++i) {
      // Whether there is a place for a counter that need not spare the flags.
      p.insns.emplace_back().flags_written = below(8) == 0 ? isa::flag::kAll : uint8_t{0};
    }
    block.first_edge = static_cast<uint32_t>(p.edges.size());
    if (b + 1 == count) {
      block.end = isa::Flow::kReturn;
      p.edges.edit().push_back({b, cfg::kExitBlock, cfg::EdgeKind::kReturn, {}});
    } else {
      if (below(3) != 0) {
        block.end = isa::Flow::kConditional;
        p.edges.edit().push_back({b, below(count), cfg::EdgeKind::kTaken, {}});
      }
      p.edges.edit().push_back({b, b + 1, cfg::EdgeKind::kFallthrough, {}});
    }
    block.edge_count = static_cast<uint32_t>(p.edges.size()) - block.first_edge;
    p.blocks.edit().push_back(block);
  }
  return p;
}

struct Total {
  uint64_t executed = 0;
  std::vector<uint64_t> counters;
  uint64_t booked = 0;
};

// One run from `block` on.  It may end in front of any instruction; that is booked.
void run(const Unit& unit, const InstructionWeights& weights, std::mt19937& random, uint32_t block,
         bool to_its_end, Total& total) {
  const cfg::Procedure& p = unit.procedure;
  const auto count = [&](int32_t counter) {
    if (counter != kNoCounter) ++total.counters[static_cast<size_t>(counter)];
  };
  while (block != cfg::kExitBlock) {
    const cfg::Block& at = p.blocks[block];
    if (!to_its_end && random() % 16 == 0) {
      const auto done = static_cast<uint32_t>(random() % (at.insn_count + 1));
      const bool counted = random() % 2 == 0;
      if (counted) count(unit.plan.block_counter[block]);
      if (!counted)
        total.booked += weights.of_booking({BookingKind::kUncounted, unit.id, block}, 1);
      total.booked += weights.of_booking({BookingKind::kLeft, unit.id, block}, 1);
      total.booked += weights.of_booking({BookingKind::kUnexecuted, unit.id, 0},
                                         static_cast<int64_t>(at.insn_count - done));
      total.executed += done;
      return;
    }
    count(unit.plan.block_counter[block]);
    total.executed += at.insn_count;
    const uint32_t edge = at.first_edge + static_cast<uint32_t>(random() % at.edge_count);
    count(unit.plan.edge_counter[edge]);
    block = p.edges[edge].to;
  }
}

uint64_t weighted(const InstructionWeights& weights, const Total& total) {
  uint64_t sum = total.booked;
  for (size_t i = 0; i < total.counters.size(); ++i) {
    sum += total.counters[i] * weights.of_counters()[i];
  }
  return sum;
}

void check(PlacementKind placement, bool to_the_end, uint32_t seed) {
  std::mt19937 random(seed);
  Made made;
  for (int i = 0; i < 3; ++i) made.add(random_procedure(random), placement);
  InstructionWeights weights(made);
  weights.update();
  Total total;
  total.counters.assign(made.counters_used(), 0);
  for (int i = 0; i < 40; ++i) {
    const Unit& unit = made.unit(static_cast<uint32_t>(random() % 3));
    if (to_the_end || random() % 4 != 0) {
      run(unit, weights, random, unit.procedure.entry_block, to_the_end, total);
      continue;
    }
    // A thread begins in the middle of the procedure.
    const auto block = static_cast<uint32_t>(random() % unit.procedure.blocks.size());
    total.booked += weights.of_booking({BookingKind::kEntered, unit.id, block}, 1);
    run(unit, weights, random, block, to_the_end, total);
  }
  EXPECT_EQ(weighted(weights, total), total.executed) << "seed " << seed;
}

TEST(InstructionWeights, CountersTimesWeightsIsWhatRan) {
  for (uint32_t seed = 1; seed <= 500; ++seed) check(PlacementKind::kEdges, true, seed);
}

TEST(InstructionWeights, RunsThatBeginAndEndInTheMiddle) {
  for (uint32_t seed = 1; seed <= 500; ++seed) check(PlacementKind::kEdges, false, seed);
}

TEST(InstructionWeights, EveryBlockCounted) {
  for (uint32_t seed = 1; seed <= 500; ++seed) check(PlacementKind::kBlocks, false, seed);
}

// Weights of units that come later leave those of earlier ones as they are.
TEST(InstructionWeights, GrowWithWhatIsTranslated) {
  std::mt19937 random(7);
  Made made;
  InstructionWeights weights(made);
  made.add(random_procedure(random), PlacementKind::kEdges);
  weights.update();
  const std::vector<uint64_t> before = weights.of_counters();
  made.add(random_procedure(random), PlacementKind::kEdges);
  weights.update();
  ASSERT_EQ(weights.of_counters().size(), made.counters_used());
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(weights.of_counters()[i], before[i]);
}

}  // namespace
