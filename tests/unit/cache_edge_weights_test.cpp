// Weights that a run leaves for the next: as good as the counts themselves, and of no effect where
// they do not belong.
#include "cache/edge_weights.h"

#include <gtest/gtest.h>

#include <random>

#include "cache/plan.h"

namespace {

using namespace tally;
using namespace tally::engine;
using placement::Count;
using placement::Origin;

// Blocks in a row, each with one or two ways on, forwards or back; the last one returns.
cfg::Procedure random_procedure(std::mt19937& random, uint32_t count) {
  cfg::Procedure p;
  p.entry = LinkAddr(0x1000);
  p.range = {p.entry, p.entry + 16 * count};
  for (uint32_t b = 0; b < count; ++b) {
    cfg::Block block;
    block.offset = 16 * b;
    block.first_edge = static_cast<uint32_t>(p.edges.size());
    const bool last = b + 1 == count;
    if (last) p.edges.edit().push_back({b, cfg::kExitBlock, cfg::EdgeKind::kReturn, {}});
    if (!last && random() % 3 != 0) {
      const auto to = static_cast<uint32_t>(random() % count);
      p.edges.edit().push_back({b, to, cfg::EdgeKind::kTaken, {}});
    }
    if (!last) p.edges.edit().push_back({b, b + 1, cfg::EdgeKind::kFallthrough, {}});
    block.edge_count = static_cast<uint32_t>(p.edges.size()) - block.first_edge;
    p.blocks.edit().push_back(block);
  }
  return p;
}

// How often each edge runs when branches are taken with a probability of their own.
std::vector<Count> random_counts(const cfg::Procedure& p, std::mt19937& random) {
  std::vector<Count> counts(p.edges.size(), {0, Origin::kMeasured});
  std::vector<double> taken;
  for (size_t b = 0; b < p.blocks.size(); ++b) {
    taken.push_back(std::uniform_real_distribution(0.02, 0.95)(random));
  }
  for (int run = 0; run < 200; ++run) {
    for (uint32_t b = p.entry_block; b != cfg::kExitBlock;) {
      const cfg::Block& block = p.blocks[b];
      const bool other = block.edge_count == 2 && std::bernoulli_distribution(taken[b])(random);
      const uint32_t e = block.first_edge + (block.edge_count == 2 && !other ? 1 : 0);
      ++counts[e].value;
      b = p.edges[e].to;
      if (counts[e].value > 100'000) return counts;
    }
  }
  return counts;
}

std::vector<uint8_t> steps_of(std::span<const Count> counts) {
  std::vector<uint64_t> values;
  for (const Count& count : counts) values.push_back(count.value);
  std::vector<uint8_t> steps;
  append_steps(values, std::ranges::max(values), steps);
  return steps;
}

// What a plan increments.
uint64_t increments(const cfg::Procedure& p, const MeasuredWeights& measured, PlacementKind kind,
                    std::span<const Count> counts) {
  uint32_t next = 0;
  const translate::Plan plan = make_plan(p, {}, kind, measured, [&] { return next++; });
  uint64_t sum = 0;
  for (size_t e = 0; e < p.edges.size(); ++e) {
    const uint32_t from = p.edges[e].from;
    if (plan.edge_counter[e] != translate::kNoCounter) sum += counts[e].value;
    if (plan.block_counter[from] != translate::kNoCounter) sum += counts[e].value;
  }
  return sum;
}

Unit unit_of(const cfg::Procedure& procedure, uint32_t id = 0) {
  Unit unit;
  unit.id = id;
  unit.procedure = procedure;
  return unit;
}

Recollected nothing_yet() {
  Recollected left;
  left.what.modules = {"ab"};
  left.module_of = {0};
  return left;
}

// Blocks that were entered as often as control came to them, but by no way that has a count.
placement::Solution solution_of(const cfg::Procedure& procedure, std::vector<Count> edges) {
  placement::Solution solution;
  solution.nodes.assign(procedure.blocks.size() + 1, {0, Origin::kDerived});
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::BlockIndex to = procedure.edges[e].to;
    if (to != cfg::kExitBlock) solution.nodes[to].value += edges[e].value;
  }
  solution.edges = std::move(edges);
  return solution;
}

// What a run leaves that was told `before`.
Recollected left_by(const cfg::Procedure& procedure, std::vector<Count> counts,
                    const EdgeWeights* before, bool& news) {
  Recollected left = nothing_yet();
  WeightsToLeave weights(left, before);
  counts.push_back({7, Origin::kDerived});  // EXIT -> root
  weights.add(unit_of(procedure), solution_of(procedure, counts));
  news = weights.is_news();
  return left;
}

std::vector<Count> times(std::vector<Count> counts, uint64_t factor) {
  for (Count& count : counts) count.value *= factor;
  return counts;
}

TEST(EdgeWeights, StepsKeepTheOrderOfCounts) {
  std::vector<uint64_t> counts;
  for (uint64_t n = 0; n < 5000; ++n) counts.push_back(n);
  for (unsigned shift = 13; shift < 64; ++shift) counts.push_back((1ull << shift) + 5);
  counts.push_back(UINT64_MAX);
  for (const uint64_t heaviest : {uint64_t{4999}, UINT64_MAX}) {
    std::vector<uint64_t> below;
    std::ranges::copy_if(counts, std::back_inserter(below), [&](auto n) { return n <= heaviest; });
    std::vector<uint8_t> steps;
    append_steps(below, heaviest, steps);
    EXPECT_EQ(steps.front(), 0);
    EXPECT_EQ(steps[1], heaviest == 4999 ? 255 - 195 : 1);  // 12 octaves and 3/16 below
    EXPECT_EQ(steps.back(), 255);
    EXPECT_TRUE(std::ranges::is_sorted(steps));
  }
}

// Steps of a sixteenth of an octave lose next to nothing, and sparing jumps a little; the rules of
// thumb lose much.
TEST(EdgeWeights, StepsPlaceAsWellAsCounts) {
  std::mt19937 random(1);
  uint64_t guessed = 0, stepped = 0, exact = 0;
  for (int round = 0; round < 300; ++round) {
    const cfg::Procedure p = random_procedure(random, static_cast<uint32_t>(2 + random() % 40));
    const std::vector<Count> counts = random_counts(p, random);
    const std::vector<uint8_t> steps = steps_of(counts);
    const FeedbackWeights known = [&](LinkAddr from, LinkAddr to) {
      double sum = 0;
      for (size_t e = 0; e < p.edges.size(); ++e) {
        const cfg::Edge& edge = p.edges[e];
        const LinkAddr end =
            edge.to == cfg::kExitBlock ? LinkAddr() : p.address_of(p.blocks[edge.to]);
        const bool is_it = p.address_of(p.blocks[edge.from]) == from && end == to;
        if (is_it) sum += static_cast<double>(counts[e].value);
      }
      return sum;
    };
    guessed += increments(p, {}, PlacementKind::kEdges, counts);
    stepped += increments(p, {{}, steps}, PlacementKind::kEdges, counts);
    exact += increments(p, {known, {}}, PlacementKind::kFeedback, counts);
    // Steps are of one placement only.
    EXPECT_EQ(increments(p, {{}, steps}, PlacementKind::kBlocks, counts),
              increments(p, {}, PlacementKind::kBlocks, counts));
  }
  EXPECT_LT(static_cast<double>(stepped), 1.1 * static_cast<double>(exact));
  EXPECT_LT(static_cast<double>(stepped), 0.9 * static_cast<double>(guessed));
}

// Where the earlier run has not been, nothing changes.
TEST(EdgeWeights, StepsThatSayNothingLeaveTheRulesOfThumb) {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    const cfg::Procedure p = random_procedure(random, static_cast<uint32_t>(2 + random() % 20));
    const std::vector<uint8_t> steps(p.edges.size(), 0);
    uint32_t a = 0, b = 0;
    const auto with = make_plan(p, {}, PlacementKind::kEdges, {{}, steps}, [&] { return a++; });
    const auto without = make_plan(p, {}, PlacementKind::kEdges, {}, [&] { return b++; });
    EXPECT_EQ(with.block_counter, without.block_counter);
    EXPECT_EQ(with.edge_counter, without.edge_counter);
  }
}

TEST(EdgeWeights, AreFoundForTheSameGraphOnly) {
  std::mt19937 random(3);
  const cfg::Procedure p = random_procedure(random, 12);
  const std::vector<Count> counts = random_counts(p, random);
  bool news = false;
  Recollected left = left_by(p, counts, nullptr, news);
  EXPECT_TRUE(news);
  ASSERT_EQ(left.what.weighed.size(), 1u);
  const EdgeWeights weights(left.what);
  const EdgeWeights::Known known = weights.find("ab", p, shape_of(p));
  ASSERT_NE(known.weighed, nullptr);
  EXPECT_TRUE(std::ranges::equal(known.steps, steps_of(counts)));
  EXPECT_EQ(weights.find("cd", p, shape_of(p)).weighed, nullptr);
  const auto refused = [&](auto change) {
    cfg::Procedure other = p;
    change(other);
    return weights.find("ab", other, shape_of(other)).weighed == nullptr;
  };
  EXPECT_FALSE(refused([](cfg::Procedure&) {}));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.entry = LinkAddr(0x1001); }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.blocks.edit()[3].offset += 1; }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.edges.edit()[0].to += 1; }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.edges.edit()[0].kind = cfg::EdgeKind::kJump; }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.edges.edit().back().target = LinkAddr(5); }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.edges.edit().pop_back(); }));
  EXPECT_TRUE(refused([](cfg::Procedure& o) { o.edges.edit().clear(); }));
}

TEST(EdgeWeights, ALargeRunsReplaceASmallOnes) {
  std::mt19937 random(4);
  const cfg::Procedure p = random_procedure(random, 12);
  const std::vector<Count> small = random_counts(p, random), other = random_counts(p, random);
  ASSERT_NE(steps_of(small), steps_of(other));
  const uint64_t bigger = 1'000'000;
  const std::vector<Count> large = times(other, bigger);
  bool news = false;
  Recollected first = left_by(p, small, nullptr, news);
  first.what.weighed[0].confirmed = true;
  const EdgeWeights of_small(first.what);
  EXPECT_EQ(left_by(p, small, &of_small, news).what.steps, steps_of(small));
  EXPECT_FALSE(news);
  EXPECT_EQ(left_by(p, times(small, 2), &of_small, news).what.steps, steps_of(small));
  EXPECT_FALSE(news) << "twice as large is no reason to write";
  Recollected second = left_by(p, large, &of_small, news);
  EXPECT_EQ(second.what.steps, steps_of(large));
  EXPECT_TRUE(news);
  const EdgeWeights of_large(second.what);
  EXPECT_EQ(left_by(p, small, &of_large, news).what.steps, steps_of(large));
  EXPECT_FALSE(news);
  // Not executed at all: it is on record still.
  const std::vector<Count> none(p.edges.size(), {0, Origin::kDerived});
  EXPECT_EQ(left_by(p, none, &of_large, news).what.steps, steps_of(large));
  EXPECT_FALSE(news);
}

// Up to a factor of two; a slot of a linkage table has no edges, only ways of its jump.
TEST(EdgeWeights, TellHowOftenProceduresRan) {
  std::mt19937 random(6);
  const cfg::Procedure p = random_procedure(random, 12);
  cfg::Procedure slot = p;
  slot.edges.edit().clear();
  bool news = false;
  for (const cfg::Procedure& procedure : {p, slot}) {
    std::vector<Count> counts(procedure.edges.size(), {9, Origin::kMeasured});
    Recollected left = left_by(procedure, counts, nullptr, news);
    const EdgeWeights few(left.what);
    EXPECT_EQ(few.times_run("ab", p.entry), procedure.edges.empty() ? 4 : 8);
    EXPECT_EQ(few.times_run("cd", p.entry), 0);
    EXPECT_EQ(few.times_run("ab", p.entry + 1), 0);
    counts.push_back({100'000, Origin::kMeasured});
    left = left_by(procedure, counts, nullptr, news);
    const EdgeWeights many(left.what);
    EXPECT_EQ(many.times_run("ab", p.entry), 65536);
  }
}

TEST(EdgeWeights, AreConfirmedByARunOfTheSameWays) {
  std::mt19937 random(7);
  const cfg::Procedure p = random_procedure(random, 12);
  std::vector<Count> counts(p.edges.size(), {100, Origin::kMeasured});
  counts[1].value = 0;
  std::vector<Count> less = counts, more = counts, nothing(p.edges.size(), {0, Origin::kMeasured});
  less[0].value = 0;
  more[1].value = 1;
  bool news = false;
  Recollected once = left_by(p, counts, nullptr, news);
  EXPECT_FALSE(once.what.weighed[0].confirmed);
  const EdgeWeights told(once.what);
  for (const auto& same : {counts, less}) {
    EXPECT_TRUE(left_by(p, same, &told, news).what.weighed[0].confirmed);
    EXPECT_TRUE(news);
  }
  EXPECT_FALSE(left_by(p, more, &told, news).what.weighed[0].confirmed);
  Recollected twice = left_by(p, counts, &told, news);
  const EdgeWeights confirmed(twice.what);
  EXPECT_TRUE(left_by(p, counts, &confirmed, news).what.weighed[0].confirmed);
  EXPECT_FALSE(news) << "nothing has changed";
  EXPECT_FALSE(left_by(p, more, &confirmed, news).what.weighed[0].confirmed);
  EXPECT_TRUE(news);
  // EXIT -> root runs in all of these: what did not run at all stays as it is.
  Recollected left = nothing_yet();
  WeightsToLeave weights(left, &confirmed);
  nothing.push_back({0, Origin::kDerived});
  weights.add(unit_of(p), solution_of(p, nothing));
  EXPECT_TRUE(left.what.weighed[0].confirmed);
  EXPECT_FALSE(weights.is_news());
}

// Of an interpreter's blocks, which come by an indirect jump and leave by another, no edge is
// counted.
TEST(EdgeWeights, TargetsOfTablesHaveWhatCameByNoOtherEdge) {
  cfg::Procedure p;
  p.blocks.edit().resize(4);
  p.edges.edit() = {{0, 1, cfg::EdgeKind::kTableJump, {}},
                    {0, 2, cfg::EdgeKind::kTableJump, {}},
                    {0, 3, cfg::EdgeKind::kTableJump, {}},
                    {1, 2, cfg::EdgeKind::kJump, {}}};
  placement::Solution solution;
  for (const uint64_t count : {0, 0, 0, 40}) solution.edges.push_back({count, Origin::kMeasured});
  for (const uint64_t count : {90, 40, 65, 0}) solution.nodes.push_back({count, Origin::kDerived});
  EXPECT_EQ(counts_of_edges(p, solution), (std::vector<uint64_t>{40, 25, 0, 40}));
}

TEST(EdgeWeights, WhatNeverRanOrIsNotOnRecordIsNotLeft) {
  std::mt19937 random(5);
  const cfg::Procedure p = random_procedure(random, 12);
  Recollected unused = nothing_yet();
  WeightsToLeave of_nothing(unused, nullptr);
  const std::vector<Count> zeros(p.edges.size() + 1, {0, Origin::kMeasured});
  of_nothing.add(unit_of(p), solution_of(p, zeros));
  EXPECT_TRUE(unused.what.weighed.empty());
  EXPECT_FALSE(of_nothing.is_news());
  Recollected left = nothing_yet();
  WeightsToLeave weights(left, nullptr);
  weights.add(unit_of(p, 1), solution_of(p, random_counts(p, random)));
  EXPECT_TRUE(left.what.weighed.empty());
  EXPECT_FALSE(weights.is_news());
}

}  // namespace
