// Which loops a register counts, on hand-assembled procedures, and what is made of its counter.
#include "cache/inductions.h"

#include <gtest/gtest.h>

#include <random>

#include "cache/plan.h"
#include "hand_assembled.h"

namespace tally::engine {
namespace {

using translate::kNoCounter;

class CacheInductions : public HandAssembled {
 protected:
  void discover(std::vector<uint8_t> code) {
    HandAssembled::discover(std::move(code));
    sizes_.clear();
    for (const isa::Insn& insn : procedure_.insns) sizes_.push_back(insn.size);
  }
  // Of the loop that begins at an offset.
  std::optional<translate::Plan::Induction> at(uint64_t offset) const {
    const uint32_t block = procedure_.block_at(LinkAddr(kBase + offset));
    EXPECT_NE(block, cfg::kExitBlock);
    return induction_of(procedure_, sizes_, view_, block);
  }
  // `again`: of edges by which blocks lead to themselves; 1 of all others.
  translate::Plan plan(uint8_t again) const {
    std::vector<uint8_t> steps;
    for (const cfg::Edge& edge : procedure_.edges) {
      steps.push_back(edge.from == edge.to ? again : 1);
    }
    uint32_t counters = 0;
    MeasuredWeights measured;
    measured.steps = steps;
    measured.is_inductive = [&](uint32_t block) {
      return induction_of(procedure_, sizes_, view_, block).has_value();
    };
    translate::Plan plan =
        make_plan(procedure_, view_, PlacementKind::kEdges, measured, [&] { return counters++; });
    find_inductions(procedure_, sizes_, view_, plan);
    return plan;
  }

  std::vector<uint8_t> sizes_;
};

// xor eax, eax; 2: mov dl, [rdi]; inc rdi; cmp dl, sil; jne 2; ret
const std::vector<uint8_t> kScan = {0x31, 0xc0, 0x8a, 0x17, 0x48, 0xff, 0xc7,
                                    0x40, 0x38, 0xf2, 0x75, 0xf6, 0xc3};

TEST_F(CacheInductions, AnIndexTellsHowOftenItsLoopRan) {
  discover(kScan);
  const auto found = at(2);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->insn, 1u);
  EXPECT_EQ(found->reg, 7);
  EXPECT_EQ(found->step, 1);
}

TEST_F(CacheInductions, TheBlockIsCountedInsteadOfTheEdgeWhereItPays) {
  discover(kScan);
  const uint32_t block = procedure_.block_at(LinkAddr(kBase + 2));
  const std::optional<uint32_t> edge = edge_to_itself(procedure_, block);
  ASSERT_TRUE(edge);
  const translate::Plan often = plan(200), seldom = plan(2);
  EXPECT_NE(often.block_counter[block], kNoCounter);
  EXPECT_EQ(often.edge_counter[*edge], kNoCounter);
  ASSERT_NE(often.induction_of(block), nullptr);
  EXPECT_EQ(seldom.block_counter[block], kNoCounter);
  EXPECT_NE(seldom.edge_counter[*edge], kNoCounter);
  EXPECT_TRUE(seldom.inductions.empty());
}

// The code is another than the plan was made for: a counter in the block counts as much.
TEST_F(CacheInductions, APlanIsNotTakenAtItsWord) {
  discover(kScan);
  translate::Plan often = plan(200);
  code_[5] = 0x89, code_[6] = 0xf7;  // mov rdi, rsi
  find_inductions(procedure_, sizes_, view_, often);
  EXPECT_TRUE(often.inductions.empty());
}

TEST_F(CacheInductions, NothingElseMayWriteTheRegister) {
  // 2: inc rdi; mov dil, 1; cmp eax, edx; jne 2; ret
  discover({0x31, 0xc0, 0x48, 0xff, 0xc7, 0x40, 0xb7, 0x01, 0x39, 0xd0, 0x75, 0xf6, 0xc3});
  EXPECT_FALSE(at(2));
  // 2: inc rdi; inc rdi; cmp rdi, rdx; jne 2; ret
  discover({0x31, 0xc0, 0x48, 0xff, 0xc7, 0x48, 0xff, 0xc7, 0x48, 0x39, 0xd7, 0x75, 0xf5, 0xc3});
  EXPECT_FALSE(at(2));
  // 2: movsb; inc rdi; cmp rdi, rdx; jne 2; ret
  discover({0x31, 0xc0, 0xa4, 0x48, 0xff, 0xc7, 0x48, 0x39, 0xd7, 0x75, 0xf7, 0xc3});
  EXPECT_FALSE(at(2));
}

TEST_F(CacheInductions, NeitherRcxNorHalfARegister) {
  // 2: dec rcx; jnz 2; ret
  discover({0x31, 0xc0, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3});
  EXPECT_FALSE(at(2));
  // 2: dec edx; jnz 2; ret
  discover({0x31, 0xc0, 0xff, 0xca, 0x75, 0xfc, 0xc3});
  EXPECT_FALSE(at(2));
}

// A register that is moved by 2^19 has come round after 2^45 runs.
TEST_F(CacheInductions, NotByTooMuch) {
  // 2: add rdi, 2^18; cmp rdi, rdx; jne 2; ret
  std::vector<uint8_t> code = {0x31, 0xc0, 0x48, 0x81, 0xc7, 0x00, 0x00, 0x04,
                               0x00, 0x48, 0x39, 0xd7, 0x75, 0xf4, 0xc3};
  discover(code);
  EXPECT_TRUE(at(2));
  code[7] = 0x08;
  discover(code);
  EXPECT_FALSE(at(2));
}

// From the beginning of the procedure, behind a call, or out of the procedure there is no edge that
// could tell the loop's counter.
TEST_F(CacheInductions, AllWaysInAndOutAreBranchesInside) {
  // 0: dec rdi; jnz 0; ret
  discover({0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3});
  EXPECT_FALSE(at(0));
  // call outside; 5: dec rdi; jnz 5; ret
  discover({0xe8, 0x00, 0x10, 0x00, 0x00, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3});
  EXPECT_FALSE(at(5));
}

TEST_F(CacheInductions, OfTwoThatLeadToEachOtherOneIs) {
  // xor eax, eax; 2: dec rdi; jnz 2; 7: dec rsi; jnz 7; ret
  discover({0x31, 0xc0, 0x48, 0xff, 0xcf, 0x75, 0xfb, 0x48, 0xff, 0xce, 0x75, 0xfb, 0xc3});
  const uint32_t first = procedure_.block_at(LinkAddr(kBase + 2));
  const uint32_t second = procedure_.block_at(LinkAddr(kBase + 7));
  const translate::Plan both = plan(200);
  EXPECT_NE(both.induction_of(first), nullptr);
  EXPECT_EQ(both.induction_of(second), nullptr);
  EXPECT_NE(both.edge_counter[*edge_to_itself(procedure_, second)], kNoCounter);
}

TEST(RunsOfLoop, AreWhatTheRegisterMovedOverItsStep) {
  std::mt19937_64 random(7);
  for (const int64_t step :
       {int64_t{1}, int64_t{-1}, int64_t{8}, int64_t{-8}, int64_t{24}, int64_t{-40},
        int64_t{0x7fffffff}, int64_t{-0x40000}, int64_t{3}, int64_t{1} << 17}) {
    for (int round = 0; round < 200; ++round) {
      const uint64_t runs = random() >> (18 + random() % 46);
      const uint64_t held = static_cast<uint64_t>(step) * runs;
      ASSERT_LT(runs, uint64_t{1} << 46);
      EXPECT_EQ(runs_of_loop(held, step), runs) << step;
    }
  }
}

TEST(RunsOfLoop, CannotBeWhereARegisterIsMissing) {
  EXPECT_FALSE(runs_of_loop(12, 8));
  EXPECT_FALSE(runs_of_loop(0 - 0x7ffff7a00000ull, 1));
  EXPECT_FALSE(runs_of_loop(0x7ffff7a00000ull, 1));
  EXPECT_FALSE(runs_of_loop(~uint64_t{0}, 1));
}

}  // namespace
}  // namespace tally::engine
