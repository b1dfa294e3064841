// Which landings have numbers, and which are looked up: where returns to all of them lead, in the
// order in which they come, are returned to often, are removed, and cannot be written.
#include "cache/landings.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>

#include "translate/layout.h"

namespace {

using namespace tally;
using engine::Landings;
using Returned = engine::Landings::Returned;
using engine::LandingNumbers;
using Rows = LandingNumbers::Rows;
using engine::ReturnsTo;
using translate::Returns;
namespace tables = translate::tables;

constexpr uint64_t kNone = 0x7f00deadbeef, kAsks = 0;
constexpr auto kNoLimit = [](size_t) { return SIZE_MAX; };

// Shared as the target's tables are, so that memory can be given back.
class LandingsTest : public testing::Test {
 protected:
  void SetUp() override { begin(Landings::Numbered::kWhereMany); }
  void begin(Landings::Numbered numbered, Returns form = Returns::kJump) {
    TearDown();
    void* memory = mmap(nullptr, tables::kSizeBytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    tables_ = static_cast<uint8_t*>(memory);
    landings_ = Landings();
    landings_.begin(tables_, form, CacheAddr(kNone), translate::Compare::kAll64, numbered, nullptr);
  }
  void TearDown() override {
    if (tables_ != nullptr) munmap(tables_, tables::kSizeBytes);
    tables_ = nullptr;
  }

  template <class T>
  T read(uint64_t at) const {
    T value{};
    std::memcpy(&value, tables_ + at, sizeof value);
    return value;
  }
  void write(bool works = true) {
    landings_.write([&](uint64_t at, std::span<const uint8_t> bytes) {
      if (!works) return false;
      std::memcpy(tables_ + tables::kLandingNumbers + at, bytes.data(), bytes.size());
      return true;
    });
  }
  // Where a return goes by its number; kNone if it looks for its landing.
  uint64_t by_number(uint64_t original) const {
    const auto number = read<uint16_t>(tables::kLandingNumbers + (original & 0xffffffff));
    return read<uint64_t>(tables::kLandings + 8 * uint64_t{number});
  }
  // As generated code does it.
  uint64_t by_hash(uint64_t original) const {
    const auto entries = read<uint32_t>(tables::kHashedEntries);
    for (uint64_t entry = translate::hashed_place(original, entries);; ++entry) {
      const uint64_t at = tables::kHashedLandings + tables::kHashedBytes * entry;
      const auto there = read<uint64_t>(at);
      if (there == original) return read<uint64_t>(at + 8);
      if (there == 0) return kAsks;
    }
  }
  uint64_t way(uint64_t original) const {
    const uint64_t numbered = by_number(original);
    return numbered == kNone ? by_hash(original) : numbered;
  }

  uint8_t* tables_ = nullptr;
  Landings landings_;
};

// With a table of those that are found by the low bits of their address.
class DirectLandingsTest : public LandingsTest {
 protected:
  void SetUp() override {
    LandingsTest::SetUp();
    for (size_t i = 0; i < gateway_.directly.size(); ++i) {
      gateway_.directly[i] = {CacheAddr(0x1000 + i), CacheAddr(0x2000 + i)};
    }
    gateway_.plainly = {CacheAddr(0x100), CacheAddr(0x200)};
    landings_ = Landings();
    landings_.begin(tables_, Returns::kJump, CacheAddr(kNone), translate::Compare::kLow32,
                    Landings::Numbered::kWhereMany, &gateway_);
  }
  // Of tables::kDirectSizes; none if nothing is looked for there.
  std::optional<size_t> size() const {
    const auto finds = read<uint64_t>(tables::kFindPopped);
    EXPECT_EQ(read<uint64_t>(tables::kFindOnStack) - finds, finds < 0x1000 ? 0x100u : 0x1000u);
    return finds < 0x1000 ? std::nullopt : std::optional<size_t>(finds - 0x1000);
  }
  uint64_t directly(uint64_t original) const {
    const tables::DirectSize& table = tables::kDirectSizes[size().value()];
    const uint32_t first = table.entry(original);
    for (uint32_t entry = first; entry < first + tables::kDirectProbes; ++entry) {
      const uint64_t at = table.offset + tables::kDirectBytes * entry;
      const uint32_t sum = read<uint32_t>(at) + static_cast<uint32_t>(original);
      if (sum == 0) return read<uint64_t>(at + 8);
    }
    return kAsks;
  }
  translate::GatewayCode gateway_;
};

TEST_F(DirectLandingsTest, NumbersAreForWhatIsReturnedToMost) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kSome);
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kOften);
  landings_.add(0x402010, CacheAddr(0x30), ReturnsTo::kMany);
  landings_.add(0x403010, CacheAddr(0x40), ReturnsTo::kMost);
  landings_.add(0x404010, CacheAddr(0x50), ReturnsTo::kFew);
  write();
  EXPECT_EQ(size(), 0u);
  EXPECT_EQ(directly(0x401010), kAsks);
  EXPECT_EQ(directly(0x401020), 0x20u);
  EXPECT_EQ(directly(0x402010), 0x30u);
  EXPECT_EQ(directly(0x404010), kAsks);
  EXPECT_EQ(by_number(0x403010), 0x40u);
  EXPECT_EQ(landings_.numbered_pages(), 1u);
  EXPECT_EQ(landings_.direct(), 2u);
  // All of them but the numbered one are in the hash table.
  for (const uint64_t at : {0x401010, 0x401020, 0x402010, 0x404010}) {
    EXPECT_NE(by_hash(at), kAsks);
    EXPECT_EQ(by_number(at), kNone);
  }
}

TEST_F(DirectLandingsTest, APageIsNumberedWhenDirectReturnsAreMany) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kSome);
  landings_.is_returned_to_often(0x401010, Landings::Page::kToBeNumbered);
  write();
  EXPECT_EQ(directly(0x401010), 0x10u);
  EXPECT_EQ(by_number(0x401010), kNone);
  landings_.hold();
  EXPECT_EQ(directly(0x401010), kAsks);
  landings_.release();
  EXPECT_EQ(directly(0x401010), 0x10u);
  // Nor is one found that comes to be meanwhile.
  landings_.add(0x402010, CacheAddr(0x20), ReturnsTo::kSome);
  landings_.hold();
  landings_.is_returned_to_often(0x402010, Landings::Page::kToBeNumbered);
  EXPECT_EQ(landings_.direct(), 2u);
  EXPECT_EQ(directly(0x402010), kAsks);
  landings_.release();
  EXPECT_EQ(directly(0x402010), 0x20u);
  landings_.is_returned_to_often(0x401010, Landings::Page::kToBeNumbered);
  write();
  EXPECT_EQ(by_number(0x401010), 0x10u);
  EXPECT_EQ(directly(0x401010), kAsks);
  EXPECT_EQ(by_hash(0x401010), kAsks);
  landings_.remove(0x401010);
  EXPECT_EQ(way(0x401010), kAsks);
}

// Entries are few at first, and all are in each other's way.
TEST_F(DirectLandingsTest, TheTableGrowsWhenPagesWouldCostMore) {
  const auto address = [](uint64_t i) { return 0x400100 + 0x1000 * i; };
  const auto code = [](uint64_t i) { return CacheAddr(0x10000 + i); };
  for (uint64_t i = 0; i < tables::kDirectProbes; ++i) {
    landings_.add(address(i), code(i), ReturnsTo::kMany);
  }
  EXPECT_EQ(landings_.direct(), tables::kDirectProbes);
  // The next one has no room; whether its page gets numbers is left to the caller.
  const uint64_t next = tables::kDirectProbes;
  landings_.add(address(next), code(next), ReturnsTo::kSome);
  landings_.is_returned_to_often(address(next), Landings::Page::kStays);
  EXPECT_EQ(landings_.numbered_pages(), 0u);
  EXPECT_NE(by_hash(address(next)), kAsks);
  landings_.is_returned_to_often(address(next), Landings::Page::kToBeNumbered);
  EXPECT_EQ(landings_.numbered_pages(), 1u);
  EXPECT_EQ(size(), 0u);
  for (uint64_t i = next + 1; i < next + 40 && size() == 0u; ++i) {
    landings_.add(address(i), code(i), ReturnsTo::kMany);
  }
  EXPECT_EQ(size(), 1u);
  for (uint64_t i = 0; i < tables::kDirectProbes; ++i) {
    EXPECT_EQ(directly(address(i)), code(i).value()) << i;
  }
  // The memory of the smaller one is zeros again.
  for (uint64_t at = 0; at < tables::kDirectSizes[0].size_bytes(); at += 8) {
    ASSERT_EQ(read<uint64_t>(tables::kDirectSizes[0].offset + at), 0u);
  }
}

TEST_F(DirectLandingsTest, TheTableGrowsOnlyWhereThereIsMemory) {
  const auto address = [](uint64_t i) { return 0x400100 + 0x1000 * i; };
  constexpr uint64_t kCount = 60;
  for (const size_t pages_max : {14u, 15u}) {
    SetUp();
    for (uint64_t i = 0; i < kCount; ++i) {
      landings_.add(address(i), CacheAddr(0x10000 + i), ReturnsTo::kMany);
    }
    EXPECT_EQ(size(), 1u);
    landings_.begin_again([](uint64_t) { return Returned{ReturnsTo::kMany}; },
                          [&](size_t landings) {
                            EXPECT_EQ(landings, kCount);
                            EXPECT_EQ(size(), 0u);
                            return pages_max;
                          },
                          Rows::kAll);
    // The smallest has 2 pages, the next one 17.
    EXPECT_EQ(size(), pages_max == 15 ? 1u : 0u);
    EXPECT_EQ(landings_.has_all_pages(), pages_max == 15);
    for (uint64_t i = 0; i < kCount; ++i) {
      EXPECT_EQ(by_hash(address(i)), 0x10000u + i);
    }
  }
}

// If there is no memory for its number, what is returned to most is found directly.
TEST_F(DirectLandingsTest, WhatGetsNoNumberIsFoundThere) {
  for (uint64_t i = 0; i < 300; ++i) {
    landings_.add(0x401000 + 0x200 * i, CacheAddr(0x20 + i), ReturnsTo::kMost);
  }
  landings_.begin_again(
      [](uint64_t at) {
        return Returned{ReturnsTo::kMost, at};
      },
      [](size_t) { return size_t{0}; }, Rows::kAll);
  EXPECT_EQ(landings_.numbered_pages(), 0u);
  // All are alike in their low 8 bits.
  for (uint64_t i = 0; i < 300; ++i) {
    const bool is_most = i >= 300 - tables::kDirectProbes;
    EXPECT_EQ(directly(0x401000 + 0x200 * i), is_most ? 0x20 + i : kAsks) << i;
  }
}

TEST_F(DirectLandingsTest, NothingIsFoundThereOnceAddressesAreAlike) {
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kMany);
  landings_.number_no_more();
  EXPECT_EQ(size(), std::nullopt);
  EXPECT_EQ(by_hash(0x401020), 0x20u);
  landings_.add(0x402020, CacheAddr(0x30), ReturnsTo::kMany);
  EXPECT_EQ(by_hash(0x402020), 0x30u);
  EXPECT_EQ(landings_.direct(), 0u);
}

TEST_F(DirectLandingsTest, AllBeginAgain) {
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kMany);
  landings_.add(0x402020, CacheAddr(0x30), ReturnsTo::kMost);
  write();
  landings_.begin_again(
      [](uint64_t at) { return Returned{at == 0x402020 ? ReturnsTo::kMany : ReturnsTo::kSome}; },
      kNoLimit, Rows::kAll);
  write();
  EXPECT_EQ(directly(0x401020), kAsks);
  EXPECT_EQ(directly(0x402020), 0x30u);
  EXPECT_EQ(by_hash(0x401020), 0x20u);
  EXPECT_EQ(landings_.numbered_pages(), 0u);
}

// The hash tables, from the smallest to the largest.
TEST(HashedTables, LieApartEachFromAPageOn) {
  uint64_t free_from = 0;
  uint32_t sizes = 0;
  for (uint32_t entries = tables::kHashedEntriesMin; entries <= tables::kHashedEntriesMax;
       entries = translate::next_hashed_entries(entries), ++sizes) {
    const uint64_t first = translate::hashed_place(0, entries);
    EXPECT_EQ(tables::kHashedBytes * first % 4096, 0u) << entries;
    EXPECT_GE(tables::kHashedBytes * first, free_from) << entries;
    // The old one's memory is given back in whole pages.
    free_from = (tables::kHashedBytes * (first + entries) + 4095) / 4096 * 4096;
    EXPECT_LE(tables::kHashedLandings + free_from, tables::kHashedLandingsEnd) << entries;
    for (uint32_t address = 1; address != 0; address <<= 1) {
      const uint32_t place = translate::hashed_place(address, entries);
      EXPECT_GE(place, first) << address;
      EXPECT_LE(place, first + entries - entries / 8) << address;
    }
  }
  EXPECT_GT(sizes, 30u);
}

TEST_F(LandingsTest, APageIsNumberedOnceReturnsAreMany) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kSome);
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kSome);
  landings_.add(0x402010, CacheAddr(0x30), ReturnsTo::kSome);
  write();
  EXPECT_EQ(landings_.touched_bytes(), 0u);
  EXPECT_EQ(landings_.hashed(), 3u);
  for (const uint64_t at : {0x401010, 0x401020, 0x402010}) EXPECT_EQ(by_number(at), kNone);
  EXPECT_EQ(by_hash(0x401020), 0x20u);

  landings_.is_returned_to_often(0x401020, Landings::Page::kToBeNumbered);
  EXPECT_EQ(way(0x401020), kAsks);  // not yet written
  write();
  EXPECT_EQ(by_number(0x401010), 0x10u);
  EXPECT_EQ(by_number(0x401020), 0x20u);
  EXPECT_EQ(by_number(0x402010), kNone);
  EXPECT_EQ(landings_.hashed(), 1u);
  EXPECT_EQ(landings_.touched_bytes(), 4096u);
  // What comes later to that page gets its number at once.
  landings_.add(0x401030, CacheAddr(0x40), ReturnsTo::kSome);
  // Too close to another for one.
  landings_.add(0x401031, CacheAddr(0x50), ReturnsTo::kSome);
  landings_.add(0x403000, CacheAddr(0x60), ReturnsTo::kMost);
  write();
  EXPECT_EQ(by_number(0x401030), 0x40u);
  EXPECT_EQ(by_number(0x401031), kNone);
  EXPECT_EQ(by_hash(0x401031), 0x50u);
  EXPECT_EQ(by_number(0x403000), 0x60u);
  EXPECT_EQ(landings_.touched_bytes(), 2 * 4096u);
}

TEST_F(LandingsTest, WhatIsHardlyReturnedToStaysWhereItIsUntilItIs) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kFew);
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kMost);
  landings_.add(0x401030, CacheAddr(0x30), ReturnsTo::kFew);
  landings_.add(0x401040, CacheAddr(0x40), ReturnsTo::kSome);
  write();
  for (const uint64_t at : {0x401010, 0x401030}) EXPECT_EQ(by_number(at), kNone);
  EXPECT_EQ(by_hash(0x401010), 0x10u);
  EXPECT_EQ(by_hash(0x401030), 0x30u);
  EXPECT_EQ(by_number(0x401040), 0x40u);
  landings_.is_returned_to_often(0x401030, Landings::Page::kToBeNumbered);
  write();
  EXPECT_EQ(by_number(0x401030), 0x30u);
  EXPECT_EQ(landings_.hashed(), 1u);
  // Known already.
  landings_.add(0x401030, CacheAddr(0x50), ReturnsTo::kFew);
  EXPECT_EQ(by_number(0x401030), 0x30u);
  EXPECT_EQ(landings_.hashed(), 1u);
  // The number is there already.
  landings_.remove(0x401030);
  EXPECT_EQ(way(0x401030), kAsks);
  landings_.add(0x401030, CacheAddr(0x60), ReturnsTo::kFew);
  EXPECT_EQ(by_number(0x401030), 0x60u);
  EXPECT_EQ(landings_.hashed(), 1u);
  // Pointers of wide numbers lie side by side.
  begin(Landings::Numbered::kWhereMany, Returns::kPaired);
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kFew);
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kMost);
  EXPECT_EQ(landings_.hashed(), 0u);
}

// What was often returned to has a number, and nothing else, whatever had one before.
TEST_F(LandingsTest, BeginAgainByWhatIsExpectedThen) {
  for (const Returns form : {Returns::kJump, Returns::kPairedLate}) {
    begin(Landings::Numbered::kWhereMany);
    if (form == Returns::kPairedLate) landings_.pair();
    std::mt19937 random(1);
    std::map<uint64_t, uint64_t> led;
    for (uint64_t i = 0; i < 5000; ++i) {
      const uint64_t original = 0x401000 + random() % (1 << 20);
      if (!led.emplace(original, 0x1000 + i).second) continue;
      landings_.add(original, CacheAddr(0x1000 + i),
                    random() % 4 == 0 ? ReturnsTo::kMany : ReturnsTo::kSome);
    }
    write();
    const uint64_t touched = landings_.touched_bytes();
    for (auto it = led.begin(); it != led.end();) {
      if (random() % 4 != 0) {
        ++it;
        continue;
      }
      landings_.remove(it->first);
      it = led.erase(it);
    }
    const uint64_t at = tables::kLandingNumbers, end = tables::kLandingNumbersEnd;
    ASSERT_EQ(madvise(tables_ + at, end - at, MADV_REMOVE), 0);
    const auto is_often = [](uint64_t original) { return original < 0x410000; };
    landings_.begin_again(
        [&](uint64_t original) {
          return Returned{is_often(original) ? ReturnsTo::kMany : ReturnsTo::kFew};
        },
        kNoLimit, Rows::kAll);
    for (const auto& [original, code] : led) EXPECT_EQ(by_number(original), kNone) << original;
    write();
    EXPECT_GT(touched, 10 * landings_.touched_bytes());
    size_t numbered = 0;
    for (const auto& [original, code] : led) {
      EXPECT_EQ(way(original), code) << original;
      numbered += by_number(original) == code ? 1 : 0;
      EXPECT_TRUE(is_often(original) || by_number(original) == kNone) << original;
    }
    EXPECT_EQ(numbered + landings_.hashed(), led.size());
    EXPECT_GT(numbered, 100u);
    // Nothing of those that are gone is left.
    for (uint64_t original = 0x401000; original < 0x501000; ++original) {
      if (led.contains(original)) continue;
      EXPECT_EQ(way(original), kAsks) << original;
    }
  }
}

TEST_F(LandingsTest, WideNumbersBeginAgain) {
  begin(Landings::Numbered::kWhereMany, Returns::kPaired);
  const auto by_wide_number = [this](uint64_t original) {
    const auto number = read<uint32_t>(tables::kLandingNumbers + (original & 0xffffffff));
    return read<uint64_t>(tables::kWideLandings + 8 * uint64_t{number});
  };
  constexpr uint64_t kBegin = 0x401000, kApart = 16, kCount = 5000;
  for (uint64_t i = 0; i < kCount; ++i) {
    landings_.add(kBegin + kApart * i, CacheAddr(i + 1), ReturnsTo::kMost);
  }
  write();
  for (uint64_t i = 0; i < kCount; ++i) EXPECT_EQ(by_wide_number(kBegin + kApart * i), i + 1);
  std::set<uint32_t> numbers;
  for (uint64_t i = 0; i < kCount; ++i) {
    numbers.insert(read<uint32_t>(tables::kLandingNumbers + kBegin + kApart * i));
  }
  const uint64_t at = tables::kLandingNumbers, end = tables::kLandingNumbersEnd;
  ASSERT_EQ(madvise(tables_ + at, end - at, MADV_REMOVE), 0);
  // Wide numbers go by pages: all those on one that is returned to often have theirs.
  const auto is_often = [](uint64_t original) { return original < kBegin + 4096; };
  landings_.begin_again(
      [&](uint64_t original) {
        return Returned{is_often(original) ? ReturnsTo::kMany : ReturnsTo::kSome};
      },
      kNoLimit, Rows::kAll);
  for (const uint32_t number : numbers) {
    const auto leads_to = read<uint64_t>(tables::kWideLandings + 8 * uint64_t{number});
    EXPECT_LE(leads_to, 4096 / kApart) << "an old pointer is left";
  }
  write();
  for (uint64_t i = 0; i < kCount; ++i) {
    const uint64_t original = kBegin + kApart * i;
    EXPECT_EQ(by_wide_number(original), is_often(original) ? i + 1 : kAsks);
    EXPECT_EQ(by_hash(original), is_often(original) ? kAsks : i + 1);
  }
}

TEST_F(LandingsTest, WhereMemoryIsShortThePagesThatAreReturnedToMostAreNumbered) {
  // The third page's landings have the most returns together, the second's the most for one.
  const std::map<uint64_t, uint64_t> returns = {
      {0x401010, 50}, {0x402010, 900}, {0x402020, 1}, {0x403010, 500}, {0x403020, 600}};
  for (const auto& [original, times] : returns) {
    landings_.add(original, CacheAddr(original & 0xffff), ReturnsTo::kMost);
  }
  write();
  EXPECT_EQ(landings_.numbered_pages(), 3u);
  EXPECT_FALSE(landings_.has_all_pages());
  const auto numbered_of = [&](size_t pages_max) {
    const uint64_t at = tables::kLandingNumbers, end = tables::kLandingNumbersEnd;
    EXPECT_EQ(madvise(tables_ + at, end - at, MADV_REMOVE), 0);
    landings_.begin_again(
        [&](uint64_t original) {
          return Returned{ReturnsTo::kMost, returns.at(original)};
        },
        [&](size_t) { return pages_max; }, Rows::kAll);
    write();
    std::set<uint64_t> result;
    for (const auto& [original, times] : returns) {
      EXPECT_EQ(way(original), original & 0xffff);
      if (by_number(original) != kNone) result.insert(original);
    }
    return result;
  };
  EXPECT_EQ(numbered_of(1), (std::set<uint64_t>{0x403010, 0x403020}));
  EXPECT_EQ(numbered_of(2), (std::set<uint64_t>{0x402010, 0x402020, 0x403010, 0x403020}));
  EXPECT_EQ(numbered_of(3).size(), returns.size());
  EXPECT_EQ(numbered_of(0), std::set<uint64_t>());
  EXPECT_TRUE(landings_.has_all_pages());
  // Not on demand either, nor what is new; but what comes to a page that has numbers gets one.
  landings_.is_returned_to_often(0x402010, Landings::Page::kToBeNumbered);
  landings_.add(0x404010, CacheAddr(0x4010), ReturnsTo::kMost);
  write();
  EXPECT_EQ(by_number(0x402010), kNone);
  EXPECT_EQ(by_number(0x404010), kNone);
  EXPECT_EQ(by_hash(0x404010), 0x4010u);
  landings_.remove(0x404010);
  numbered_of(1);
  landings_.add(0x403030, CacheAddr(0x3030), ReturnsTo::kSome);
  landings_.is_returned_to_often(0x403030, Landings::Page::kToBeNumbered);
  write();
  EXPECT_EQ(by_number(0x403030), 0x3030u);
}

// As the target sees them: rows from kLentRow on are all mapped to one page.
TEST_F(LandingsTest, WhereRowsAreLentFewPagesHaveAllPointers) {
  constexpr uint64_t kRowBytes = 256 * 8, kPageBytes = 4096;
  // That is not among what the monitor gives back, whose rows are all its own; here they are not.
  const auto fill = [&] {
    for (uint64_t at = 0; at < kPageBytes; at += 8) {
      std::memcpy(tables_ + tables::kNoLandings + at, &kNone, sizeof kNone);
    }
  };
  for (uint64_t row = tables::kLentRow; row < 256; row += kPageBytes / kRowBytes) {
    uint8_t* to = tables_ + tables::kLandings + row * kRowBytes;
    ASSERT_EQ(
        mremap(tables_ + tables::kNoLandings, 0, kPageBytes, MREMAP_MAYMOVE | MREMAP_FIXED, to),
        to);
  }
  const auto returned = [](uint64_t) { return Returned{ReturnsTo::kMost}; };
  landings_.begin_again(returned, kNoLimit, Rows::kLent);
  fill();
  std::mt19937 random(5);
  std::map<uint64_t, uint64_t> led;
  const auto add = [&](uint64_t count) {
    while (led.size() < count) {
      const uint64_t original = 0x401000 + random() % 0x200000;
      if (!led.try_emplace(original, 0x1000 + led.size()).second) continue;
      landings_.add(original, CacheAddr(led[original]), ReturnsTo::kMost);
    }
    write();
  };
  const auto check = [&] {
    size_t numbered = 0;
    for (const auto& [original, code] : led) {
      EXPECT_EQ(way(original), code) << original;
      numbered += by_number(original) == code ? 1 : 0;
      // Beside it nothing leads anywhere, or where another's is.
      for (uint64_t near = original - 2; near <= original + 2; ++near) {
        const auto found = led.find(near);
        EXPECT_EQ(way(near), found == led.end() ? kAsks : found->second) << near;
      }
    }
    EXPECT_EQ(numbered + landings_.hashed(), led.size());
    return numbered;
  };
  add(1000);
  EXPECT_GT(check(), 990u);
  unsigned char exists[256 / 2] = {};
  ASSERT_EQ(mincore(tables_ + tables::kLandings, 256 * kRowBytes, exists), 0);
  size_t pages = 0;
  for (size_t i = 0; i < tables::kLentRow / 2; ++i) pages += exists[i] & 1;
  EXPECT_LE(pages, 4u);
  // More than there are numbers: the others are looked up.
  add(9000);
  EXPECT_EQ(check(), 6944u);
  // A second time they are there already.
  const uint64_t at = tables::kLandingNumbers, end = tables::kLandingNumbersEnd;
  ASSERT_EQ(madvise(tables_ + at, end - at, MADV_REMOVE), 0);
  landings_.begin_again(returned, kNoLimit, Rows::kLent);
  fill();
  write();
  EXPECT_EQ(check(), 6944u);
  // Where only some could be lent, there are numbers for those that are left.
  ASSERT_EQ(madvise(tables_ + at, end - at, MADV_REMOVE), 0);
  landings_.begin_again(returned, kNoLimit, Rows::kSomeLent);
  fill();
  write();
  EXPECT_EQ(check(), 31u * 31u);
}

TEST_F(LandingsTest, AskedAboutWhatIsNoLandingNothingIsNumbered) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kSome);
  landings_.is_returned_to_often(0x401014, Landings::Page::kToBeNumbered);
  write();
  EXPECT_EQ(landings_.touched_bytes(), 0u);
}

TEST_F(LandingsTest, AllAreNumberedIfThatIsAsked) {
  begin(Landings::Numbered::kAll);
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kSome);
  write();
  EXPECT_EQ(by_number(0x401010), 0x10u);
  EXPECT_EQ(landings_.hashed(), 0u);
}

TEST_F(LandingsTest, WhereNumbersCannotBeWrittenAllAreLookedUp) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kMost);
  write();
  landings_.add(0x402010, CacheAddr(0x20), ReturnsTo::kMost);
  landings_.hold();
  write(false);
  EXPECT_TRUE(landings_.has_given_numbers_up());
  landings_.release();
  EXPECT_EQ(way(0x401010), 0x10u);
  EXPECT_EQ(way(0x402010), 0x20u);
  landings_.add(0x402020, CacheAddr(0x30), ReturnsTo::kMost);
  EXPECT_EQ(way(0x402020), 0x30u);
  landings_.remove(0x402010);
  landings_.remove(0x401010);
  EXPECT_EQ(way(0x402010), kAsks);
  EXPECT_EQ(way(0x401010), kAsks);
}

// Whoever gave their memory back was called away in the middle of it: the numbers are gone, or what
// they lead to is mapped elsewhere, and in both cases returns look their landings up.
TEST_F(LandingsTest, WhereNumbersAreHalfGoneAllAreLookedUp) {
  landings_.add(0x401010, CacheAddr(0x10), ReturnsTo::kMost);
  landings_.add(0x402010, CacheAddr(0x20), ReturnsTo::kSome);
  write();
  EXPECT_EQ(by_number(0x401010), 0x10u);
  EXPECT_EQ(by_hash(0x401010), kAsks);
  landings_.give_numbers_up();
  EXPECT_TRUE(landings_.has_given_numbers_up());
  EXPECT_TRUE(landings_.has_all_pages());
  EXPECT_EQ(by_hash(0x401010), 0x10u);
  EXPECT_EQ(by_hash(0x402010), 0x20u);
  landings_.is_returned_to_often(0x402010, Landings::Page::kToBeNumbered);
  landings_.add(0x401020, CacheAddr(0x30), ReturnsTo::kMost);
  write();
  EXPECT_EQ(by_hash(0x402010), 0x20u);
  EXPECT_EQ(by_hash(0x401020), 0x30u);
  EXPECT_EQ(by_number(0x402010), kNone);
  EXPECT_EQ(by_number(0x401020), kNone);
}

TEST_F(DirectLandingsTest, NumbersGivenUpLeaveWhatIsFoundDirectly) {
  landings_.add(0x401020, CacheAddr(0x20), ReturnsTo::kOften);
  landings_.add(0x403010, CacheAddr(0x40), ReturnsTo::kMost);
  write();
  landings_.give_numbers_up();
  EXPECT_EQ(directly(0x401020), 0x20u);
  EXPECT_EQ(by_hash(0x403010), 0x40u);
  landings_.is_returned_to_often(0x403010, Landings::Page::kToBeNumbered);
  EXPECT_EQ(directly(0x403010), 0x40u);
  landings_.add(0x404010, CacheAddr(0x50), ReturnsTo::kMany);
  EXPECT_EQ(directly(0x404010), 0x50u);
}

TEST_F(LandingsTest, LeadWhereTheyWereToldWhateverHappens) {
  std::mt19937 random(3);
  for (const bool may_fail : {false, true}) {
    begin(Landings::Numbered::kWhereMany);
    std::map<uint64_t, uint64_t> led;
    std::set<uint64_t> seen;
    bool held = false;
    for (uint32_t round = 0; round < 60000; ++round) {
      const uint64_t at = 0x400000 + 3 * (random() % 40000);
      seen.insert(at);
      switch (random() % 8) {
        case 0:
          landings_.remove(at);
          led.erase(at);
          break;
        case 1:
          landings_.is_returned_to_often(0x400000 + 3 * (random() % 2000),
                                         Landings::Page::kToBeNumbered);
          break;
        default: {
          const bool many = random() % 64 == 0 && at < 0x404000;
          const ReturnsTo others = random() % 4 == 0 ? ReturnsTo::kFew : ReturnsTo::kSome;
          landings_.add(at, CacheAddr(at * 16), many ? ReturnsTo::kMany : others);
          led.emplace(at, at * 16);
        }
      }
      if (random() % 512 == 0) {
        held ? landings_.release() : landings_.hold();
        held = !held;
      }
      write(!may_fail || round < 30000);
    }
    if (held) landings_.release();
    EXPECT_EQ(landings_.has_given_numbers_up(), may_fail);
    for (const uint64_t at : seen) {
      const auto known = led.find(at);
      ASSERT_EQ(landings_.has(at), known != led.end()) << at;
      ASSERT_EQ(way(at), known == led.end() ? kAsks : known->second) << at;
    }
    EXPECT_GT(landings_.touched_bytes(), 3 * 4096u);
    EXPECT_GT(landings_.hashed(), 10000u);
    const TargetRange gone{TargetAddr(0x400000), TargetAddr(0x408000)};
    landings_.remove(gone);
    for (const uint64_t at : seen) {
      if (gone.contains(TargetAddr(at))) {
        ASSERT_EQ(way(at), kAsks) << at;
      }
    }
  }
}

}  // namespace
