// Where returns to all addresses around landings lead, against what has been added and removed.
// The lookup is done as the generated code does it.
#include "cache/landing_numbers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <random>

#include "translate/layout.h"

namespace {

using namespace tally;
using engine::LandingNumbers;
using translate::Returns;
namespace tables = translate::tables;

constexpr uint64_t kNone = 0x7f00deadbeef;
// At the ends of the low 32 bits, too.
constexpr uint64_t kBases[] = {0x555500000000, 0x555512345000, 0x5555fffff000};

class Numbers : public testing::TestWithParam<Returns> {
 protected:
  void SetUp() override {
    void* memory = mmap(nullptr, tables::kSizeBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    tables_ = static_cast<uint8_t*>(memory);
    numbers_.begin(tables_, GetParam(), CacheAddr(kNone));
  }
  void TearDown() override { munmap(tables_, tables::kSizeBytes); }

  uint64_t read(uint64_t at, size_t size_bytes) const {
    uint64_t value = 0;
    std::memcpy(&value, tables_ + at, size_bytes);
    return value;
  }
  // Where a return to the address goes; kNone if it asks.
  uint64_t look_up(uint64_t address) const {
    const uint64_t at = tables::kLandingNumbers + (address & 0xffffffff);
    if (GetParam() == Returns::kJump) return read(tables::kLandings + 8 * read(at, 2), 8);
    const uint64_t found = read(tables::kWideLandings + 8 * read(at, 4), 8);
    return found == 0 ? kNone : found;
  }
  void expect_as(const std::map<uint64_t, uint64_t>& landings, uint64_t address) {
    const auto known = landings.find(address);
    EXPECT_EQ(look_up(address), known == landings.end() ? kNone : known->second) << address;
    EXPECT_EQ(numbers_.has(address), known != landings.end());
  }

  uint8_t* tables_ = nullptr;
  LandingNumbers numbers_;
};

TEST_P(Numbers, LeadWhereTheyWereTold) {
  std::mt19937 random(7);
  std::map<uint64_t, uint64_t> landings;
  uint64_t code = 0x7f0000000000;
  size_t refused = 0;
  for (int round = 0; round < 40000; ++round) {
    const uint64_t address = kBases[random() % 3] + random() % 4000;  // close together
    if (random() % 3 == 0) {
      numbers_.remove(address);
      landings.erase(address);
    } else if (landings.contains(address)) {
      EXPECT_TRUE(numbers_.add(address, CacheAddr(landings[address])));
    } else if (numbers_.add(address, CacheAddr(code += 16))) {
      landings[address] = code;
    } else {
      ++refused;
    }
    for (uint64_t near = address - 4; near <= address + 4; ++near) expect_as(landings, near);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(landings.size(), 500u);
  EXPECT_GT(refused, 100u);
  const TargetRange gone{TargetAddr(kBases[0] + 1000), TargetAddr(kBases[0] + 3000)};
  numbers_.remove(gone);
  std::erase_if(landings, [&](const auto& one) { return gone.contains(TargetAddr(one.first)); });
  for (uint64_t at = kBases[0]; at < kBases[0] + 4000; ++at) expect_as(landings, at);
}

TEST_P(Numbers, AreEnough) {
  std::map<uint64_t, uint64_t> landings;
  uint64_t address = 0x400000, code = 0x7f0000000000;
  const uint32_t most = GetParam() == Returns::kJump ? 255 * 255 : 200000;
  for (uint32_t i = 0; i < most; ++i, address += 5 + i % 3) {
    ASSERT_TRUE(numbers_.add(address, CacheAddr(code += 16))) << i;
    landings[address] = code;
  }
  EXPECT_EQ(numbers_.add(address, CacheAddr(code)), GetParam() == Returns::kPaired);
  if (GetParam() == Returns::kPaired) landings[address] = code;
  for (uint64_t at = 0x400000 - 8; at < address + 8; ++at) expect_as(landings, at);
}

TEST_P(Numbers, OfAddressesAlikeAreTheFirstOnes) {
  EXPECT_TRUE(numbers_.add(0x100400000, CacheAddr(0x7f0000000010)));
  EXPECT_FALSE(numbers_.add(0x200400000, CacheAddr(0x7f0000000020)));
  EXPECT_EQ(look_up(0x200400000), 0x7f0000000010u);  // the landing itself compares
  EXPECT_TRUE(numbers_.has(0x100400000));
  EXPECT_FALSE(numbers_.has(0x200400000));
  numbers_.remove(0x200400000);
  EXPECT_TRUE(numbers_.has(0x100400000));
  numbers_.remove(0x100400000);
  EXPECT_EQ(look_up(0x100400000), kNone);
  EXPECT_TRUE(numbers_.add(0x200400000, CacheAddr(0x7f0000000020)));
  EXPECT_EQ(look_up(0x200400000), 0x7f0000000020u);
}

TEST_P(Numbers, OthersAlikeInTheLow32BitsAreKnown) {
  ASSERT_TRUE(numbers_.add(kBases[0], CacheAddr(0x1000)));
  EXPECT_FALSE(numbers_.is_anothers(kBases[0]));
  EXPECT_TRUE(numbers_.is_anothers(kBases[0] + (1ull << 32)));
  EXPECT_FALSE(numbers_.add(kBases[0] + (1ull << 32), CacheAddr(0x2000)));
  EXPECT_FALSE(numbers_.is_anothers(kBases[1]));
  numbers_.remove(kBases[0]);
  EXPECT_FALSE(numbers_.is_anothers(kBases[0] + (1ull << 32)));
}

// While they are held, all returns ask; what was removed, made or made again meanwhile stays so.
TEST_P(Numbers, WhatIsHeldAsksUntilItIsReleased) {
  const uint64_t kept = kBases[0], removed = kBases[1], again = kBases[0] + 0x1000;
  const uint64_t fresh = kBases[1] + 0x1000;
  for (const uint64_t original : {kept, removed, again}) {
    ASSERT_TRUE(numbers_.add(original, CacheAddr(original + 1)));
  }
  numbers_.hold();
  for (const uint64_t original : {kept, removed, again}) EXPECT_EQ(look_up(original), kNone);
  EXPECT_TRUE(numbers_.has(kept));
  numbers_.remove(removed);
  numbers_.remove(again);
  ASSERT_TRUE(numbers_.add(again, CacheAddr(0x3000)));
  ASSERT_TRUE(numbers_.add(fresh, CacheAddr(0x4000)));
  numbers_.release();
  EXPECT_EQ(look_up(kept), kept + 1);
  EXPECT_EQ(look_up(removed), kNone);
  EXPECT_EQ(look_up(again), 0x3000u);
  EXPECT_EQ(look_up(fresh), 0x4000u);
}

// The program can write to the table.
TEST_P(Numbers, WhatWasNotGivenAwayIsNone) {
  ASSERT_TRUE(numbers_.add(kBases[0], CacheAddr(0x1000)));
  for (const int byte : {0x02, 0x7f, 0xff}) {
    std::memset(tables_ + tables::kLandingNumbers + (kBases[1] & 0xffffffff), byte, 4);
    EXPECT_FALSE(numbers_.has(kBases[1]));
    EXPECT_FALSE(numbers_.add(kBases[1], CacheAddr(0x2000)));
    numbers_.remove(kBases[1]);
  }
  EXPECT_TRUE(numbers_.has(kBases[0]));
}

INSTANTIATE_TEST_SUITE_P(Forms, Numbers, testing::Values(Returns::kJump, Returns::kPaired),
                         [](const auto& named) {
                           return named.param == Returns::kJump ? "Jump" : "Paired";
                         });

}  // namespace
