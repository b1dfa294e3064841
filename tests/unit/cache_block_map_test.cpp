// Which block begins at an address, against a plain map.
#include "cache/block_map.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tally::engine {
namespace {

// Blocks at these distances from the beginning of its range, the first of them the entry.
cfg::Procedure procedure_at(uint64_t begin, const std::vector<uint32_t>& offsets) {
  cfg::Procedure p;
  p.range = {LinkAddr(begin), LinkAddr(begin + offsets.back() + 1)};
  for (const uint32_t offset : offsets) {
    cfg::Block block;
    block.offset = offset;
    block.size_bytes = 1;
    p.blocks.edit().push_back(block);
  }
  return p;
}

uint64_t number(uint32_t unit, uint32_t block) {
  return static_cast<uint64_t>(unit) << 32 | block;
}

constexpr uint64_t kGone = ~0ull;
constexpr uint64_t kBias = 0x7000'0000'0000;

TEST(BlockMap, FindsBlocksAndNothingBetween) {
  const cfg::Procedure p = procedure_at(0x1000, {8, 16, 0x5000});
  BlockMap map;
  map.add(3, p, kBias);
  EXPECT_EQ(map.find(kBias + 0x1008), number(3, 0));
  EXPECT_EQ(map.find(kBias + 0x1010), number(3, 1));
  EXPECT_EQ(map.find(kBias + 0x6000), number(3, 2));
  for (const uint64_t nothing : {0x0ffful, 0x1000ul, 0x1009ul, 0x1011ul, 0x3000ul, 0x6001ul}) {
    EXPECT_EQ(map.find(kBias + nothing), std::nullopt) << nothing;
  }
}

TEST(BlockMap, WhatIsGoneComesBackWithTheNextUnit) {
  const cfg::Procedure old = procedure_at(0x2000, {0, 4, 8});
  const cfg::Procedure fresh = procedure_at(0x2004, {0, 4});
  BlockMap map;
  map.add(0, old, 0);
  for (const uint64_t address : {0x2000, 0x2004, 0x2008}) map.set(address, kGone);
  map.remove(0, old, 0);
  EXPECT_EQ(map.find(0x2004), kGone);
  map.add(1, fresh, 0);
  EXPECT_EQ(map.find(0x2000), kGone);
  EXPECT_EQ(map.find(0x2004), number(1, 0));
  EXPECT_EQ(map.find(0x2008), number(1, 1));
}

// Against a plain map, with ranges that overlap.
TEST(BlockMap, LikeAPlainMap) {
  std::mt19937 random(1);
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
  std::vector<std::unique_ptr<cfg::Procedure>> procedures;
  std::map<uint64_t, uint64_t> plain;
  BlockMap map;
  constexpr uint64_t kBase = 0x10000, kSpan = 0x8000;
  for (uint32_t unit = 0; unit < 300; ++unit) {
    const uint64_t begin = kBase + below(kSpan);
    std::vector<uint32_t> offsets = {below(64)};
    for (uint32_t more = below(200); more > 0; --more) {
      offsets.push_back(offsets.back() + 1 + below(more % 50 == 0 ? 5000 : 40));
    }
    procedures.push_back(std::make_unique<cfg::Procedure>(procedure_at(begin, offsets)));
    procedures.back()->entry_block = below(static_cast<uint32_t>(offsets.size()));
    map.add(unit, *procedures.back(), kBias);
    for (uint32_t b = 0; b < offsets.size(); ++b) {
      plain[kBias + begin + offsets[b]] = number(unit, b);
    }
    if (unit % 3 != 0) continue;
    const uint32_t dead = below(unit + 1);
    const cfg::Procedure& p = *procedures[dead];
    for (uint32_t b = 0; b < p.blocks.size(); ++b) {
      const uint64_t address = kBias + p.range.begin.value() + p.blocks[b].offset;
      if (plain[address] != number(dead, b)) continue;
      plain[address] = kGone;
      map.set(address, kGone);
    }
    map.remove(dead, p, kBias);
  }
  for (uint64_t address = kBias + kBase; address < kBias + kBase + 4 * kSpan; ++address) {
    const auto expected = plain.find(address);
    const auto found = map.find(address);
    ASSERT_EQ(found.has_value(), expected != plain.end()) << address;
    if (found) {
      ASSERT_EQ(*found, expected->second) << address;
    }
  }
}

}  // namespace
}  // namespace tally::engine
