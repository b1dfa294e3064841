// Shapes of jumps through tables, as compilers write them, and near misses.
#include <gtest/gtest.h>

#include <vector>

#include "isa/indexed_jump.h"

namespace tally::isa {
namespace {

using Bytes = std::vector<uint8_t>;

std::optional<IndexedJump> find(const std::vector<Bytes>& insns) {
  std::vector<std::span<const uint8_t>> spans;
  for (const Bytes& insn : insns) spans.emplace_back(insn);
  return indexed_jump(spans);
}

const Bytes kMovzxEdxR15b = {0x41, 0x0f, 0xb6, 0xd7};
const Bytes kMovzxEdxByteRsi = {0x0f, 0xb6, 0x16};
const Bytes kMovzxEdxWordRsi = {0x0f, 0xb7, 0x16};
const Bytes kAndEdx15 = {0x83, 0xe2, 0x0f};
const Bytes kAndEdxMinus1 = {0x83, 0xe2, 0xff};
const Bytes kAndEdx255 = {0x81, 0xe2, 0xff, 0, 0, 0};
const Bytes kAndEdx256 = {0x81, 0xe2, 0x00, 1, 0, 0};
const Bytes kAndEax127 = {0x25, 0x7f, 0, 0, 0};
const Bytes kMovEdxEax = {0x89, 0xc2};
const Bytes kMovEdxEdx = {0x89, 0xd2};
const Bytes kMovRdxRax = {0x48, 0x89, 0xc2};
const Bytes kMovEaxR14d = {0x44, 0x89, 0xf0};
const Bytes kLoadEaxR14d = {0x41, 0x8b, 0xc6};
const Bytes kIncEdx = {0xff, 0xc2};
const Bytes kMulRsi = {0x48, 0xf7, 0xe6};
const Bytes kMovDl7 = {0xb2, 0x07};
const Bytes kLoadEsiRdi = {0x8b, 0x37};
const Bytes kShrEbx7 = {0xc1, 0xeb, 0x07};
const Bytes kLoadRaxRcxRdx4 = {0x48, 0x63, 0x04, 0x91};
const Bytes kLoadRaxR15Rax4 = {0x49, 0x63, 0x04, 0x87};
const Bytes kLoadRaxR14Rax8 = {0x49, 0x8b, 0x04, 0xc6};
const Bytes kLoadRaxRax8At = {0x48, 0x8b, 0x04, 0xc5, 0x00, 0xaf, 0x73, 0x00};
const Bytes kAddRaxRcx = {0x48, 0x01, 0xc8};
const Bytes kAddRaxRdi = {0x48, 0x01, 0xf8};
const Bytes kAddRaxR15 = {0x4c, 0x01, 0xf8};
const Bytes kLeaRcxRbx64 = {0x48, 0x8d, 0x4b, 0x40};
const Bytes kJmpRax = {0xff, 0xe0};
const Bytes kNotrackJmpRax = {0x3e, 0xff, 0xe0};
const Bytes kJmpMemory = {0xff, 0x24, 0xc5, 0x00, 0xaf, 0x73, 0x00};

TEST(IndexedJump, Distances) {
  for (const Bytes& bound : {kMovzxEdxR15b, kMovzxEdxByteRsi, kAndEdx15, kAndEdx255}) {
    for (const Bytes& jump : {kJmpRax, kNotrackJmpRax}) {
      const auto found = find({kIncEdx, bound, kLoadRaxRcxRdx4, kAddRaxRcx, jump});
      ASSERT_TRUE(found);
      EXPECT_EQ(found->first, 2);
      EXPECT_EQ(found->bounded_by, 1);
      EXPECT_EQ(found->index, 2);
      EXPECT_FALSE(found->masked);
      EXPECT_TRUE(found->has_base);
      EXPECT_EQ(found->base, 1);
      EXPECT_EQ(found->displacement, 0);
      EXPECT_TRUE(found->holds_distances);
    }
  }
}

TEST(IndexedJump, TheIndexIsMaskedWhereItIsCopied) {
  for (const Bytes& copy : {kMovEaxR14d, kLoadEaxR14d}) {
    const auto found = find({kIncEdx, copy, kLoadRaxR15Rax4, kAddRaxR15, kJmpRax});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->first, 1);
    EXPECT_EQ(found->bounded_by, 1);
    EXPECT_EQ(found->index, 0);
    EXPECT_TRUE(found->masked);
    EXPECT_EQ(found->from, 14);
    EXPECT_EQ(found->base, 15);
  }
}

TEST(IndexedJump, PointersWithWorkInBetween) {
  const auto found =
      find({kMovEaxR14d, kAndEax127, kShrEbx7, kLoadRaxR14Rax8, kLeaRcxRbx64, kJmpRax});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->first, 3);
  EXPECT_EQ(found->bounded_by, 1);
  EXPECT_FALSE(found->masked);
  EXPECT_EQ(found->base, 14);
  EXPECT_FALSE(found->holds_distances);
}

TEST(IndexedJump, ATableAtAFixedAddress) {
  const auto found = find({kAndEax127, kLoadRaxRax8At, kJmpRax});
  ASSERT_TRUE(found);
  EXPECT_FALSE(found->has_base);
  EXPECT_EQ(found->displacement, 0x73af00);
}

// Else the dispatch would read far behind its table.
TEST(IndexedJump, NothingIsTakenToBeBoundThatIsNot) {
  const std::vector<std::vector<Bytes>> fronts = {
      {},
      {kIncEdx},
      {kMovzxEdxR15b, kIncEdx},
      {kMovzxEdxR15b, kMulRsi},  // writes rdx without naming it
      {kMovzxEdxR15b, kMovDl7},  // a part of it
      {kMovzxEdxWordRsi},
      {kAndEdxMinus1},
      {kAndEdx256},
      {kAndEax127},  // another register
      {kMovEdxEdx},  // nowhere to put the low byte
      {kMovRdxRax},
      {kMovEdxEax, kIncEdx},
      {kMovzxEdxR15b, kLoadEsiRdi},  // which may fault, and then anything may have changed
  };
  for (std::vector<Bytes> insns : fronts) {
    insns.insert(insns.end(), {kLoadRaxRcxRdx4, kAddRaxRcx, kJmpRax});
    EXPECT_FALSE(find(insns)) << insns.size() << " instructions";
  }
}

TEST(IndexedJump, OtherShapes) {
  EXPECT_FALSE(find({kMovzxEdxR15b, kLoadRaxRcxRdx4, kAddRaxRdi, kJmpRax}));  // another's base
  EXPECT_FALSE(find({kMovzxEdxR15b, kLoadRaxRcxRdx4, kJmpRax}));
  EXPECT_FALSE(find({kMovzxEdxR15b, kAddRaxRcx, kJmpRax}));
  EXPECT_FALSE(find({kAndEax127, kJmpMemory}));
  EXPECT_FALSE(find({kJmpRax}));
}

TEST(IndexedJump, LoadedAddresses) {
  const Bytes lea_r15 = {0x4c, 0x8d, 0x3d, 0x10, 0, 0, 0};
  const Bytes lea_rdi_back = {0x48, 0x8d, 0x3d, 0xf0, 0xff, 0xff, 0xff};
  EXPECT_EQ(loads_address(lea_r15, 0x1000, 15), 0x1017u);
  EXPECT_EQ(loads_address(lea_rdi_back, 0x1000, 7), 0xff7u);
  EXPECT_FALSE(loads_address(lea_r15, 0x1000, 7));
  EXPECT_FALSE(loads_address(kLeaRcxRbx64, 0x1000, 1));
  EXPECT_FALSE(loads_address({}, 0x1000, 1));
}

}  // namespace
}  // namespace tally::isa
