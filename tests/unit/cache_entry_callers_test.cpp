// Which procedures ask their callers, and which branches need a counter for it: on random graphs.
#include "cache/entry_callers.h"

#include <gtest/gtest.h>

#include <random>

namespace {

using tally::engine::EntryCallers;

struct Procedure {
  uint32_t module = 0;
  uint64_t entry = 0;
  bool may = true;
  uint64_t entries = 0;
  std::vector<EntryCallers::Branch> branches;
};

std::vector<uint32_t> ranks_of(const std::vector<Procedure>& all) {
  EntryCallers callers;
  for (const Procedure& one : all) {
    callers.add(one.module, one.entry, one.may, one.entries, one.branches);
  }
  return callers.ranks();
}

bool goes_to(const Procedure& from, const EntryCallers::Branch& branch, const Procedure& to) {
  return from.module == to.module && branch.target == to.entry;
}

bool leads_to(const std::vector<Procedure>& all, size_t from, size_t to) {
  std::vector<bool> seen(all.size(), false);
  std::vector<size_t> work{from};
  while (!work.empty()) {
    const Procedure& at = all[work.back()];
    work.pop_back();
    for (const EntryCallers::Branch& branch : at.branches) {
      for (size_t i = 0; i < all.size(); ++i) {
        if (!goes_to(at, branch, all[i])) continue;
        if (i == to) return true;
        if (!seen[i]) work.push_back(i);
        seen[i] = true;
      }
    }
  }
  return false;
}

// How often branches into each were taken that need a counter, by their ranks.
std::vector<uint64_t> counted(const std::vector<Procedure>& all,
                              const std::vector<uint32_t>& ranks) {
  std::vector<uint64_t> times(all.size(), 0);
  for (size_t from = 0; from < all.size(); ++from) {
    for (const EntryCallers::Branch& branch : all[from].branches) {
      for (size_t to = 0; to < all.size(); ++to) {
        const bool needs = ranks[to] != 0 && ranks[from] >= ranks[to];
        if (needs && goes_to(all[from], branch, all[to])) times[to] += branch.times;
      }
    }
  }
  return times;
}

TEST(EntryCallers, WhoeverDoesNotLeadToItselfAsksAndNeedsNoCounter) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const size_t count = 1 + random() % 9;
    std::vector<Procedure> all;
    for (size_t i = 0; i < count; ++i) {
      all.push_back({static_cast<uint32_t>(random() % 2),
                     16 * (i / 2),
                     random() % 8 != 0,
                     random() % 2000,
                     {}});
      for (size_t t = random() % 3; t > 0; --t) {
        const uint64_t times = random() % 2 == 0 ? 0 : random() % 1000;
        all.back().branches.push_back({16 * (random() % (count + 1)), times});
      }
    }
    const std::vector<uint32_t> ranks = ranks_of(all);
    const std::vector<uint64_t> needed = counted(all, ranks);
    for (size_t i = 0; i < count; ++i) {
      size_t alike = 0;
      for (size_t other = 0; other < count; ++other) {
        alike += all[other].module == all[i].module && all[other].entry == all[i].entry ? 1 : 0;
      }
      const bool may = all[i].may && alike == 1;
      EXPECT_TRUE(may || ranks[i] == 0) << round << ": " << i;
      EXPECT_LE(2 * needed[i], all[i].entries) << round << ": " << i;
      if (!may || leads_to(all, i, i)) continue;
      EXPECT_NE(ranks[i], 0u) << round << ": " << i;
      EXPECT_EQ(needed[i], 0u) << round << ": " << i;
    }
  }
}

// `even` and `odd` call each other; `even` gets to `fail`, and `fail` to all of them, never.
TEST(EntryCallers, CirclesAreBrokenWhereTheyAreSeldomTaken) {
  const std::vector<Procedure> all = {{0, 10, true, 100, {{20, 90}, {30, 0}}},
                                      {0, 20, true, 90, {{10, 7}}},
                                      {0, 30, true, 0, {{10, 0}, {20, 0}}},
                                      {0, 40, true, 50, {{40, 49}}},
                                      {0, 50, true, 50, {{50, 3}}}};
  const std::vector<uint32_t> ranks = ranks_of(all);
  EXPECT_LT(ranks[0], ranks[1]);
  EXPECT_NE(ranks[0], 0u);
  EXPECT_NE(ranks[2], 0u);
  EXPECT_EQ(ranks[3], 0u) << "hardly entered but by itself";
  EXPECT_NE(ranks[4], 0u);
  EXPECT_EQ(counted(all, ranks), (std::vector<uint64_t>{7, 0, 0, 0, 3}));
}

// Its counter is there anyhow where the ranks are the other way round.
TEST(EntryCallers, IndirectBranchesAreFollowedWhereTheyCanBe) {
  EntryCallers callers;
  const std::vector<EntryCallers::Branch> call = {{20, 100}};
  callers.add(0, 10, true, 91, call);
  callers.add(0, 20, true, 100, {});
  callers.add(1, 10, true, 60, {});
  callers.lead(1, 0, 90);
  callers.lead(1, 2, 60);
  callers.lead(2, 2, 7);
  EXPECT_EQ(callers.ranks(), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(EntryCallers, AVeryLongChain) {
  constexpr uint32_t kLength = 300'000;
  std::vector<Procedure> all;
  for (uint32_t i = 0; i < kLength; ++i) all.push_back({0, i, true, 5, {{i + 1, 5}}});
  for (const uint64_t last : {uint64_t{kLength}, uint64_t{0}}) {
    all.back().branches = {{last, 1}};
    const std::vector<uint32_t> ranks = ranks_of(all);
    for (uint32_t i = 0; i < kLength; ++i) ASSERT_EQ(ranks[i], i + 1);
  }
}

TEST(EntryCallers, CirclesThatWereTakenAsOftenAsCanBe) {
  const std::vector<Procedure> all = {{0, 10, true, 9, {{20, UINT64_MAX}}},
                                      {0, 20, true, 9, {{10, UINT64_MAX}}}};
  const std::vector<uint32_t> ranks = ranks_of(all);
  EXPECT_NE(ranks[0] == 0, ranks[1] == 0);
}

TEST(EntryCallers, NoneAreNone) {
  EXPECT_TRUE(ranks_of({}).empty());
}

}  // namespace
