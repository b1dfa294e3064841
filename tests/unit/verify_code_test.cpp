// Reading and splitting blocks, and the algorithm of residues, without running anything.
#include <gtest/gtest.h>

#include "verify/checkers.h"

namespace tally::verify {
namespace {

// 0: mov eax, 1 (5)   5: cmp eax, 2 (3)   8: jne 0 (2)   10: add eax, 1 (3)   13: ret
const std::vector<uint8_t> kText = {0xb8, 1,    0,    0,    0,    0x83, 0xf8,
                                    2,    0x75, 0xf6, 0x83, 0xc0, 1,    0xc3};
constexpr uint64_t kBase = 0x1000;

class Blocks : public testing::Test {
 protected:
  Blocks() : module(code.module("/bin/x")) { module.from_memory[kBase] = kText; }
  LinkAddr at(uint64_t offset) { return LinkAddr(kBase + offset); }
  Code code;
  CodeModule& module;
};

TEST_F(Blocks, EndAtBranches) {
  const CodeBlock& b = code.block(code.arrive(module, at(0)));
  EXPECT_EQ(b.end, at(10));
  EXPECT_EQ(b.last, at(8));
  EXPECT_EQ(b.how, BlockEnd::kBranch);
  EXPECT_TRUE(b.simple);
  EXPECT_EQ(b.body.size(), 2u);
}

TEST_F(Blocks, EndInFrontOfKnownBeginnings) {
  code.expect(module, at(5));
  const CodeBlock& b = code.block(code.arrive(module, at(0)));
  EXPECT_EQ(b.end, at(5));
  EXPECT_EQ(b.how, BlockEnd::kFallthrough);
}

TEST_F(Blocks, AreSplitByArrivals) {
  BlockId upper_seen = kNoBlock;
  BlockId lower_seen = kNoBlock;
  code.on_split = [&](BlockId u, BlockId l) { upper_seen = u, lower_seen = l; };
  const BlockId upper = code.arrive(module, at(0));
  const BlockId lower = code.arrive(module, at(5));
  EXPECT_EQ(upper_seen, upper);
  EXPECT_EQ(lower_seen, lower);
  EXPECT_EQ(code.block(upper).end, at(5));
  EXPECT_EQ(code.block(upper).how, BlockEnd::kFallthrough);
  EXPECT_EQ(code.block(lower).end, at(10));
  EXPECT_EQ(code.block(lower).how, BlockEnd::kBranch);
}

TEST_F(Blocks, InsideAnInstructionOverlap) {
  const BlockId whole = code.arrive(module, at(0));
  const BlockId inside = code.arrive(module, at(2));  // in the constant of the mov
  EXPECT_EQ(code.block(whole).end, at(10)) << "nothing may be split there";
  EXPECT_TRUE(code.block(inside).overlaps);
  EXPECT_TRUE(code.block(whole).overlaps) << "no breakpoint may stand in either";
}

TEST_F(Blocks, HostileBytesEndQuietly) {
  module.from_memory[0x9000] = {0x0f};
  EXPECT_EQ(code.block(code.arrive(module, LinkAddr(0x9000))).how, BlockEnd::kBroken);
  EXPECT_EQ(code.block(code.arrive(module, LinkAddr(0xffffffffffffffff))).how, BlockEnd::kBroken);
}

// A claim of the loop above: entered once, three turns, left.
claims::Claims claimed_loop() {
  claims::Claims c;
  c.form = claims::Form::kTally;
  c.modules = {{.path = "/bin/x", .build_id = "", .main_program = true}};
  c.blocks = {{.begin = {0, LinkAddr(kBase)}, .size_bytes = 10, .count = 3, .record = 1},
              {.begin = {0, LinkAddr(kBase + 10)}, .size_bytes = 4, .count = 1, .record = 2}};
  c.edges = {{.from = {0, LinkAddr(kBase)},
              .to = {0, LinkAddr(kBase)},
              .count = 2,
              .record = 1,
              .origin = claims::EdgeOrigin::kBlockBegin,
              .role = EdgeRole::kBranch},
             {.from = {0, LinkAddr(kBase)},
              .to = {0, LinkAddr(kBase + 10)},
              .count = 1,
              .record = 2,
              .origin = claims::EdgeOrigin::kBlockBegin,
              .role = EdgeRole::kFallthrough}};
  return c;
}

class Residues : public testing::Test {
 protected:
  Judgement run(const claims::Claims& claims, bool through_the_middle = false) {
    Code code;
    CodeModule& module = code.module("/bin/x");
    module.from_memory[kBase] = kText;
    ClaimedBlocks blocks(code, claims);
    EdgeChecker edges(code);
    BlockChecker entered(code);
    const auto tell = [&](auto what) { what(static_cast<Checker&>(edges)), what(entered); };
    code.on_split = [&](BlockId u, BlockId l) { tell([&](Checker& c) { c.block_split(u, l); }); };
    const auto enter = [&](uint64_t offset) {
      const BlockId id = code.arrive(module, LinkAddr(kBase + offset));
      tell([&](Checker& c) { c.block_entered(id); });
      return id;
    };
    BlockId a = enter(0);
    const BlockId loop = enter(0);
    tell([&](Checker& c) { c.edge_taken(a, loop, EdgeRole::kBranch); });
    if (through_the_middle) {
      // From the loop's end control arrives in the middle of the block that the profile has.
      const BlockId lower = code.arrive(module, LinkAddr(kBase + 5));
      tell([&](Checker& c) { c.edge_taken(lower, lower, EdgeRole::kBranch); });
      tell([&](Checker& c) { c.block_entered(lower); });
      a = lower;
    } else {
      a = enter(0);
      tell([&](Checker& c) { c.edge_taken(loop, a, EdgeRole::kBranch); });
    }
    const BlockId out = enter(10);
    tell([&](Checker& c) { c.edge_taken(a, out, EdgeRole::kFallthrough); });
    blocks.settle();
    Judgement judgement;
    edges.judge(claims, blocks, true, judgement);
    entered.judge(claims, blocks, true, judgement);
    return judgement;
  }
};

TEST_F(Residues, NoneOfACorrectProfile) {
  EXPECT_TRUE(run(claimed_loop()).findings.empty());
}

TEST_F(Residues, OneTooManyIsNamed) {
  claims::Claims c = claimed_loop();
  c.edges[0].count = 3;
  const Judgement j = run(c);
  ASSERT_EQ(j.findings.size(), 1u);
  EXPECT_EQ(j.findings[0].kind, FindingKind::kEdgeCount);
  EXPECT_EQ(j.findings[0].claimed, 3u);
  EXPECT_EQ(j.findings[0].counted, 2u);
  EXPECT_EQ(j.findings[0].where, "x+0x1000");
}

TEST_F(Residues, AMissingEdgeIsNamed) {
  claims::Claims c = claimed_loop();
  c.edges.pop_back();
  const Judgement j = run(c);
  ASSERT_EQ(j.findings.size(), 1u);
  EXPECT_EQ(j.findings[0].kind, FindingKind::kMissingEdge);
  EXPECT_EQ(j.findings[0].reason, Reason::kStructure);
}

TEST_F(Residues, AMissingBlockSplitsAndInheritsTheCount) {
  const Judgement j = run(claimed_loop(), true);
  // The upper part was entered twice, not three times; the edge from the loop's end to its middle
  // is missing, and the one to its beginning was taken once.
  size_t missing = 0;
  for (const Finding& f : j.findings) missing += f.kind == FindingKind::kMissingEdge;
  EXPECT_EQ(missing, 1u);
  const auto upper = std::find_if(j.findings.begin(), j.findings.end(), [](const Finding& f) {
    return f.kind == FindingKind::kBlockCount && f.address == LinkAddr(kBase);
  });
  ASSERT_NE(upper, j.findings.end());
  EXPECT_EQ(upper->counted, 2u);
  const auto lower = std::find_if(j.findings.begin(), j.findings.end(), [](const Finding& f) {
    return f.address == LinkAddr(kBase + 5) && f.kind == FindingKind::kBlockCount;
  });
  EXPECT_EQ(lower, j.findings.end()) << "the lower part was entered as often as was claimed";
}

}  // namespace
}  // namespace tally::verify
