// Which units have a part of a range, against looking at all of them.
#include "cache/unit_index.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using namespace tally;
using tally::engine::UnitIndex;

struct Made {
  uint32_t module;
  LinkRange range;
};

std::vector<uint32_t> look_at_all(const std::vector<Made>& units, const std::vector<bool>& gone,
                                  uint32_t module, LinkRange range) {
  std::vector<uint32_t> result;
  for (uint32_t id = 0; id < units.size(); ++id) {
    const Made& u = units[id];
    if (!gone[id] && u.module == module && u.range.begin < range.end && range.begin < u.range.end) {
      result.push_back(id);
    }
  }
  std::ranges::stable_sort(result, {}, [&](uint32_t id) { return units[id].range.begin; });
  return result;
}

TEST(UnitIndex, FindsWhatLookingAtAllFinds) {
  std::mt19937_64 random(7);
  const auto any_range = [&] {
    const uint64_t begin = 0x401000 + random() % 0x20000;
    const uint64_t size = 1 + (random() % 8 == 0 ? random() % 0x9000 : random() % 200);
    return LinkRange{LinkAddr(begin), LinkAddr(begin + size)};
  };
  UnitIndex index;
  std::vector<Made> units;
  std::vector<bool> gone;
  size_t met = 0;
  for (int round = 0; round < 3000; ++round) {
    if (round % 3 == 0) {
      units.push_back({static_cast<uint32_t>(random() % 3), any_range()});
      gone.push_back(false);
      index.add(units.back().module, units.back().range, static_cast<uint32_t>(units.size() - 1));
    } else if (round % 20 == 1) {
      const auto id = static_cast<uint32_t>(random() % units.size());
      index.remove(units[id].module, units[id].range, id);
      gone[id] = true;
    }
    const auto module = static_cast<uint32_t>(random() % 3);
    const LinkRange range = any_range();
    const auto expected = look_at_all(units, gone, module, range);
    ASSERT_EQ(index.meeting(module, range), expected) << "round " << round;
    met += expected.size();
  }
  EXPECT_GT(met, 1000u);
}

TEST(UnitIndex, KnowsNoUnitInAnEmptyRange) {
  UnitIndex index;
  index.add(0, {LinkAddr(0x1000), LinkAddr(0x2000)}, 0);
  EXPECT_TRUE(index.meeting(0, {LinkAddr(0x1800), LinkAddr(0x1800)}).empty());
  EXPECT_TRUE(index.meeting(0, {LinkAddr(0x2000), LinkAddr(0x2001)}).empty());
  EXPECT_TRUE(index.meeting(0, {LinkAddr(0xfff), LinkAddr(0x1000)}).empty());
  EXPECT_EQ(index.meeting(0, {LinkAddr(0xfff), LinkAddr(0x1001)}).size(), 1u);
}

}  // namespace
