// Where returns to all addresses around landings lead, against what has been added and removed.
// The lookup is done as the generated code does it.
#include "cache/landing_numbers.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>

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
    numbers_.begin(tables_, is_wide() ? Returns::kPaired : Returns::kJump, CacheAddr(kNone));
    if (GetParam() == Returns::kPairedLate) numbers_.pair();
  }
  void TearDown() override { munmap(tables_, tables::kSizeBytes); }

  static bool is_wide() { return GetParam() == Returns::kPaired; }

  uint64_t read(uint64_t at, size_t size_bytes) const {
    uint64_t value = 0;
    std::memcpy(&value, tables_ + at, size_bytes);
    return value;
  }
  static uint64_t or_none(uint64_t found) { return found == 0 ? kNone : found; }
  // Where a return to the address goes, in whatever form; kNone if it asks.
  uint64_t look_up(uint64_t address) {
    EXPECT_TRUE(numbers_.write([&](uint64_t to, std::span<const uint8_t> bytes) {
      std::memcpy(tables_ + tables::kLandingNumbers + to, bytes.data(), bytes.size());
      return true;
    }));
    const uint64_t at = tables::kLandingNumbers + (address & 0xffffffff);
    if (is_wide()) return or_none(read(tables::kWideLandings + 8 * read(at, 4), 8));
    const uint64_t jumped_to = read(tables::kLandings + 8 * read(at, 2), 8);
    if (GetParam() == Returns::kPairedLate) {
      EXPECT_EQ(or_none(read(tables::kLateLandings + 8 * read(at, 2), 8)), jumped_to);
    }
    return jumped_to;
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
  const uint32_t most = is_wide() ? 200000 : 255 * 255;
  for (uint32_t i = 0; i < most; ++i, address += 5 + i % 3) {
    ASSERT_TRUE(numbers_.add(address, CacheAddr(code += 16))) << i;
    landings[address] = code;
  }
  EXPECT_EQ(numbers_.add(address, CacheAddr(code)), is_wide());
  if (is_wide()) landings[address] = code;
  for (uint64_t at = 0x400000 - 8; at < address + 8; ++at) expect_as(landings, at);
}

// Pointers of numbers that are given one after the other lie together.
TEST_P(Numbers, TouchFewPagesOfPointers) {
  constexpr uint32_t kLandings = 940;
  std::set<uint64_t> pages;
  for (uint32_t i = 0; i < kLandings; ++i) {
    const uint64_t address = kBases[0] + 16ull * i;
    ASSERT_TRUE(numbers_.add(address, CacheAddr(0x7f0000000000 + 16 * i)));
    ASSERT_EQ(look_up(address), 0x7f0000000000 + 16 * i);
    uint32_t number = 0;
    std::memcpy(&number, tables_ + tables::kLandingNumbers + (address & 0xffffffff),
                is_wide() ? 4 : 2);
    pages.insert(8ull * number / 4096);
  }
  // In rows of 94, two on a page; or in a square of 31 rows.
  EXPECT_LE(pages.size(), is_wide() ? 6u : 17u);
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

// Whatever else stands in the table.
TEST_P(Numbers, WhatWasNotGivenAwayIsNone) {
  ASSERT_TRUE(numbers_.add(kBases[0], CacheAddr(0x1000)));
  for (const int byte : {0x02, 0x7f, 0xff}) {
    std::memset(tables_ + tables::kLandingNumbers + (kBases[1] & 0xffffffff), byte, 4);
    EXPECT_FALSE(numbers_.has(kBases[1]));
    EXPECT_FALSE(numbers_.is_anothers(kBases[1]));
    numbers_.remove(kBases[1]);
  }
  EXPECT_TRUE(numbers_.add(kBases[1], CacheAddr(0x2000)));
  EXPECT_EQ(look_up(kBases[1]), 0x2000u);
  EXPECT_TRUE(numbers_.has(kBases[0]));
}

std::string name_of(const testing::TestParamInfo<Returns>& form) {
  constexpr std::array kNames{"Jump", "Paired", "PairedLate"};
  return kNames[static_cast<size_t>(form.param)];
}

INSTANTIATE_TEST_SUITE_P(Forms, Numbers,
                         testing::Values(Returns::kJump, Returns::kPaired, Returns::kPairedLate),
                         name_of);

// Those that are there when returns are paired late, one of them gone since and one held.
TEST(NumbersPairedLate, HaveWhatWasThere) {
  void* memory = mmap(nullptr, tables::kSizeBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* tables = static_cast<uint8_t*>(memory);
  const auto look_up = [&](uint64_t address, uint32_t table) {
    uint16_t number = 0;
    uint64_t to = 0;
    std::memcpy(&number, tables + tables::kLandingNumbers + (address & 0xffffffff), sizeof number);
    std::memcpy(&to, tables + table + 8ul * number, sizeof to);
    return to;
  };
  LandingNumbers numbers;
  numbers.begin(tables, Returns::kJump, CacheAddr(kNone));
  const auto write = [&] {
    EXPECT_TRUE(numbers.write([&](uint64_t at, std::span<const uint8_t> bytes) {
      std::memcpy(tables + tables::kLandingNumbers + at, bytes.data(), bytes.size());
      return true;
    }));
  };
  const uint64_t there = kBases[0], gone = kBases[1], later = kBases[0] + 64;
  ASSERT_TRUE(numbers.add(there, CacheAddr(0x1000)) && numbers.add(gone, CacheAddr(0x2000)));
  write();
  numbers.remove(gone);
  EXPECT_EQ(look_up(there, tables::kLateLandings), 0u);
  numbers.hold();
  numbers.pair();
  EXPECT_EQ(look_up(there, tables::kLateLandings), 0u);
  numbers.release();
  ASSERT_TRUE(numbers.add(later, CacheAddr(0x3000)));
  write();
  for (const auto& [address, to] : {std::pair{there, 0x1000u}, {later, 0x3000u}}) {
    EXPECT_EQ(look_up(address, tables::kLandings), to);
    EXPECT_EQ(look_up(address, tables::kLateLandings), to);
  }
  EXPECT_EQ(look_up(gone, tables::kLateLandings), 0u);
  // Between two numbers, and where none was ever: what is read there is no landing.
  for (uint64_t near : {there - 1, there + 1, there + 2, kBases[2]}) {
    EXPECT_EQ(look_up(near, tables::kLandings), kNone);
    EXPECT_EQ(look_up(near, tables::kLateLandings), 0u);
  }
  munmap(memory, tables::kSizeBytes);
}

}  // namespace
