// How hard a run's returns are to foretell, from its edges, and what follows from it.
#include "cache/return_targets.h"

#include <gtest/gtest.h>

namespace tally::engine {
namespace {

using profile::CountSource;
using profile::EdgeKind;
using translate::Returns;

constexpr uint64_t kSmallBytes = 1 << 20, kLargeBytes = 4 << 20;

struct Call {
  uint32_t from, to;
  uint64_t count;
};

// Ten procedures of two blocks each, 2p and 2p + 1.
profile::Profile calls(const std::vector<Call>& made) {
  profile::Profile p;
  p.procedures.resize(10);
  p.blocks.resize(20);
  for (uint32_t b = 0; b < 20; ++b) p.blocks[b].procedure_id = b / 2;
  for (const Call& call : made) {
    p.edges.emplace_back(2 * call.from, 2 * call.to, EdgeKind::kCall, call.count,
                         CountSource::kMeasured);
  }
  return p;
}

void take(profile::Profile& p, uint32_t procedure, uint64_t count,
          EdgeKind kind = EdgeKind::kTaken) {
  p.edges.emplace_back(2 * procedure, 2 * procedure + 1, kind, count, CountSource::kMeasured);
}

uint32_t millibits(profile::Profile p, const std::vector<std::pair<uint32_t, uint64_t>>& taken) {
  for (const auto& [procedure, count] : taken) take(p, procedure, count);
  return measure_returns(p).millibits;
}

TEST(ReturnTargets, BitsForEachCall) {
  EXPECT_EQ(measure_returns(profile::Profile{}).calls, 0u);
  EXPECT_EQ(measure_returns(calls({{0, 1, 0}})).calls, 0u);
  EXPECT_EQ(measure_returns(calls({{0, 1, 100}, {0, 2, 50}})).calls, 150u);
  EXPECT_EQ(millibits(calls({{0, 1, 100}, {0, 2, 50}}), {{1, 1000}, {2, 1000}}), 0u);
  EXPECT_EQ(millibits(calls({{0, 1, 90}, {2, 1, 10}}), {{1, 1000}}), 469u);
  EXPECT_EQ(millibits(calls({{0, 1, 7}, {2, 1, 7}, {3, 1, 7}, {4, 1, 7}}), {{1, 1000}}), 2000u);
  // By the number of calls, not of procedures.
  EXPECT_EQ(millibits(calls({{0, 1, 5}, {2, 1, 5}, {0, 3, 990}}), {{1, 1000}}), 10u);
  // A call of either kind is one.
  profile::Profile both = calls({{0, 1, 5}});
  both.edges.emplace_back(8, 2, EdgeKind::kIndirectCall, 5, CountSource::kMeasured);
  EXPECT_EQ(millibits(both, {{1, 1000}}), 1000u);
}

// Three taken branches and the return hide a call.
TEST(ReturnTargets, CallsThatAreStillRememberedAtTheReturnDoNotCount) {
  const profile::Profile two = calls({{0, 1, 10}, {2, 1, 10}});
  EXPECT_EQ(millibits(two, {}), 0u);
  EXPECT_EQ(millibits(two, {{1, 59}}), 0u);
  EXPECT_EQ(millibits(two, {{1, 60}}), 1000u);
  EXPECT_EQ(millibits(two, {{0, 1000}, {2, 1000}}), 0u);  // the callers' own
  for (const EdgeKind kind : {EdgeKind::kJump, EdgeKind::kIndirectJump, EdgeKind::kFallthrough,
                              EdgeKind::kCallReturn, EdgeKind::kSystemCall}) {
    profile::Profile p = two;
    take(p, 1, 60, kind);
    const bool taken = kind == EdgeKind::kJump || kind == EdgeKind::kIndirectJump;
    EXPECT_EQ(measure_returns(p).millibits, taken ? 1000u : 0u);
  }
  // Calls and returns of what it calls are branches, and so are theirs: 1 -> 3 -> 4 -> 5.
  profile::Profile deep = calls({{0, 1, 10}, {2, 1, 10}, {1, 3, 20}, {3, 4, 20}, {4, 5, 20}});
  EXPECT_EQ(millibits(deep, {}), 250u);
  profile::Profile shallow = calls({{0, 1, 10}, {2, 1, 10}, {1, 3, 20}, {3, 4, 20}});
  EXPECT_EQ(millibits(shallow, {}), 0u);
  EXPECT_EQ(millibits(shallow, {{4, 20}}), 333u);
  // A procedure that calls itself comes to an end.
  EXPECT_GT(millibits(calls({{0, 1, 10}, {1, 1, 1000}}), {}), 0u);
}

TEST(ReturnTargets, OfCallsWithoutAProfile) {
  EXPECT_EQ(measure_returns(CallsMade{}).calls, 0u);
  CallsMade made{{{0, 2, 2, 10}, {1, 2, 2, 10}, {0, 1, 1, 5}}, 3, {0, 0, 1000}};
  EXPECT_EQ(measure_returns(made), (Recollection::Returns{25, 800}));
  made.branches[2] = 0;
  EXPECT_EQ(measure_returns(made), (Recollection::Returns{25, 0}));
  EXPECT_TRUE(are_hard({25, 800}));
  EXPECT_FALSE(are_hard({25, 500}));
}

TEST(ReturnTargets, TheLastRunDecidesAndTheSizeWhereThereIsNone) {
  EXPECT_EQ(choose_returns({}, {kSmallBytes, 0}), Returns::kJump);
  EXPECT_EQ(choose_returns({}, {kLargeBytes, 0}), Returns::kPaired);
  EXPECT_EQ(choose_returns({}, {kSmallBytes, kLargeBytes}), Returns::kJump);
  EXPECT_EQ(choose_returns({}, {kSmallBytes, 10 * kLargeBytes}), Returns::kPaired);
  EXPECT_EQ(choose_returns({1, 700}, {kSmallBytes, 0}), Returns::kPaired);
  EXPECT_EQ(choose_returns({1, 600}, {kLargeBytes, 10 * kLargeBytes}), Returns::kJump);
}

TEST(ReturnTargets, ALargeRunIsNotForgottenForASmallOne) {
  const Recollection::Returns large{1'000'000, 2000};
  EXPECT_EQ(better_known(large, {1000, 10}), large);
  EXPECT_EQ(better_known(large, {500'000, 10}).millibits, 10u);
  EXPECT_EQ(better_known({}, {1, 10}).millibits, 10u);
  EXPECT_EQ(better_known(large, {}), large);
}

}  // namespace
}  // namespace tally::engine
