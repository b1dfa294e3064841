// Where counters sit, on hand-assembled procedures: not where they have to spare the flags, as long
// as there is another place that tells as much.
#include "cache/plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "cache/edge_weights.h"
#include "hand_assembled.h"

namespace tally::engine {
namespace {

using cfg::EdgeKind;
using translate::kNoCounter;

class CachePlan : public HandAssembled {
 protected:
  translate::Plan plan(PlacementKind kind, const MeasuredWeights& measured) {
    uint32_t counters = 0;
    return make_plan(procedure_, view_, kind, measured, [&] { return counters++; });
  }
  // A step for each kind of edge, by `times`.
  template <class Times>
  std::vector<uint8_t> steps(const Times& times) const {
    std::vector<uint8_t> all;
    for (const cfg::Edge& edge : procedure_.edges) all.push_back(times(edge.kind));
    return all;
  }
  static std::vector<bool> counted(const std::vector<int32_t>& counters) {
    std::vector<bool> all;
    for (const int32_t counter : counters) all.push_back(counter != kNoCounter);
    return all;
  }
};

// In the middle of three blocks that run alike no flag is known to be dead: the callee may read
// what the one before it has left.
TEST_F(CachePlan, OfTwoBlocksTheOneWithoutFlags) {
  discover({
      0x89, 0xd8, 0xe8, 0x00, 0x10, 0x00, 0x00,  // mov eax, ebx; call out
      0x89, 0xd8, 0xe8, 0x00, 0x10, 0x00, 0x00,  // mov eax, ebx; call out
      0x31, 0xc0, 0xc3                           // xor eax, eax; ret
  });
  ASSERT_EQ(procedure_.blocks.size(), 3u);
  EXPECT_FALSE(procedure_.insn_with_dead(isa::flag::kAll, procedure_.blocks[0]));
  EXPECT_FALSE(procedure_.insn_with_dead(isa::flag::kAll, procedure_.blocks[1]));
  EXPECT_EQ(procedure_.insn_with_dead(isa::flag::kAll, procedure_.blocks[2]), 0u);
  for (const std::vector<uint8_t>& known : {std::vector<uint8_t>(), std::vector<uint8_t>(3, 40)}) {
    const translate::Plan placed = plan(PlacementKind::kEdges, {{}, known, true});
    EXPECT_EQ(counted(placed.block_counter), (std::vector{false, false, true}));
    EXPECT_EQ(counted(placed.edge_counter), (std::vector{false, false, false}));
  }
}

// push rbx; xor edi, edi; call out; pop rbx; ret.  Behind the call the flags may be what the
// procedure returns.
TEST_F(CachePlan, SparingTheFlagsWeighsThreeTimes) {
  discover({0x53, 0x31, 0xff, 0xe8, 0x00, 0x10, 0x00, 0x00, 0x5b, 0xc3});
  ASSERT_EQ(procedure_.blocks.size(), 2u);
  const auto counted_blocks = [&](uint8_t call_returns) {
    const std::vector<uint8_t> known = steps([&](EdgeKind kind) {
      return kind == EdgeKind::kCallReturn ? call_returns : uint8_t{4 * kStepsForHalf};
    });
    return counted(plan(PlacementKind::kEdges, {{}, known, true}).block_counter);
  };
  constexpr auto kTwice = static_cast<uint8_t>(5 * kStepsForHalf);
  constexpr auto kFourTimes = static_cast<uint8_t>(6 * kStepsForHalf);
  EXPECT_EQ(counted_blocks(kTwice), (std::vector{true, false}));
  EXPECT_EQ(counted_blocks(kFourTimes), (std::vector{false, true}));
}

// xor eax, eax; loop: inc eax; cmp eax, edi; jne loop; ret: a loop's ways round tell its ways out
// if the number of entries is known, and a straight line tells nothing new.
TEST_F(CachePlan, WhoseEntriesAreKnownHasACounterLess) {
  MeasuredWeights known;
  known.from_callers = true;
  discover({0x31, 0xc0, 0xc3});
  EXPECT_EQ(counted(plan(PlacementKind::kEdges, {}).block_counter), (std::vector{true}));
  EXPECT_EQ(counted(plan(PlacementKind::kEdges, known).block_counter), (std::vector{false}));
  discover({0x31, 0xc0, 0xff, 0xc0, 0x39, 0xf8, 0x75, 0xfa, 0xc3});
  ASSERT_EQ(procedure_.blocks.size(), 3u);
  const auto counters = [&](const MeasuredWeights& measured) {
    uint32_t count = 0;
    const translate::Plan placed = plan(PlacementKind::kEdges, measured);
    for (const bool one : counted(placed.block_counter)) count += one ? 1 : 0;
    for (const bool one : counted(placed.edge_counter)) count += one ? 1 : 0;
    return count;
  };
  EXPECT_EQ(counters({}), 2u);
  EXPECT_EQ(counters(known), 1u);
}

// Those who ask for the weights of another run want the fewest increments.
TEST_F(CachePlan, ExactWeightsStay) {
  discover({0x53, 0x31, 0xff, 0xe8, 0x00, 0x10, 0x00, 0x00, 0x5b, 0xc3});
  const FeedbackWeights twice_in_front = [](LinkAddr from, LinkAddr) {
    return from == LinkAddr(kBase) ? 20.0 : 10.0;
  };
  const translate::Plan placed = plan(PlacementKind::kFeedback, {twice_in_front, {}, true});
  EXPECT_EQ(counted(placed.block_counter), (std::vector{false, true}));
}

}  // namespace
}  // namespace tally::engine
