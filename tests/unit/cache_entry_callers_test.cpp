// Which procedures may ask their callers: against a search from each of them, on random graphs.
#include "cache/entry_callers.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using tally::engine::EntryCallers;

struct Procedure {
  uint32_t module = 0;
  uint64_t entry = 0;
  bool may = true;
  std::vector<uint64_t> targets;
};

std::vector<bool> choose(const std::vector<Procedure>& all) {
  EntryCallers callers;
  for (const Procedure& one : all) callers.add(one.module, one.entry, one.may, one.targets);
  return callers.choose();
}

bool leads_to(const std::vector<Procedure>& all, size_t from, size_t to) {
  std::vector<bool> seen(all.size(), false);
  std::vector<size_t> work{from};
  while (!work.empty()) {
    const Procedure& at = all[work.back()];
    work.pop_back();
    for (const uint64_t target : at.targets) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (all[i].module != at.module || all[i].entry != target) continue;
        if (i == to) return true;
        if (!seen[i]) work.push_back(i);
        seen[i] = true;
      }
    }
  }
  return false;
}

TEST(EntryCallers, NobodyWhoLeadsToHimself) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 9;
    std::vector<Procedure> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({static_cast<uint32_t>(random() % 2), 16 * (i / 2), random() % 8 != 0, {}});
      for (size_t t = random() % 3; t > 0; --t) {
        all.back().targets.push_back(16 * (random() % (count + 1)));
      }
    }
    const std::vector<bool> chosen = choose(all);
    for (size_t i = 0; i < count; ++i) {
      size_t alike = 0;
      for (const Procedure& other : all) {
        alike += other.module == all[i].module && other.entry == all[i].entry ? 1 : 0;
      }
      EXPECT_EQ(chosen[i], all[i].may && alike == 1 && !leads_to(all, i, i)) << round << ": " << i;
    }
  }
}

TEST(EntryCallers, AVeryLongChain) {
  constexpr uint64_t kLength = 300'000;
  std::vector<Procedure> all;
  for (uint64_t i = 0; i < kLength; ++i) all.push_back({0, i, true, {i + 1}});
  for (const bool one : choose(all)) EXPECT_TRUE(one);
  all.back().targets = {0};
  for (const bool one : choose(all)) EXPECT_FALSE(one);
}

TEST(EntryCallers, NoneAreNone) {
  EXPECT_TRUE(choose({}).empty());
}

}  // namespace
