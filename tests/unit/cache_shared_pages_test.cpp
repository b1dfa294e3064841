// Pages that share memory: what lives of each stays where it is, and memory is free when nobody is
// left there, not earlier.
#include "cache/shared_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

namespace {

using namespace tally;
using engine::SharedPages;
constexpr uint64_t kPageBytes = SharedPages::kPageBytes;

CacheAddr page(uint64_t number) {
  return CacheAddr(0x10000 + number * kPageBytes);
}

SharedPages::Bytes bytes(uint64_t begin, uint64_t end) {
  SharedPages::Bytes result;
  for (uint64_t i = begin; i < end; ++i) result.set(i);
  return result;
}

TEST(SharedPages, ThoseThatDoNotMeetGoTogether) {
  SharedPages shared;
  const auto plan = shared.plan({{page(0), bytes(0, 100)},
                                 {page(1), bytes(50, 300)},
                                 {page(2), bytes(300, 400)},
                                 {page(3), bytes(0, 4000)}});
  // The first and the third lie beside the second, which has most, or the third beside the first;
  // the last one is as good as full.
  ASSERT_EQ(plan.moves.size(), 1u);
  EXPECT_EQ(plan.moves[0].page, page(2));
  EXPECT_EQ(plan.moves[0].to, page(1));
  ASSERT_EQ(plan.hosts.size(), 1u);
  EXPECT_EQ(plan.hosts[0].home, page(1));
  EXPECT_EQ(plan.hosts[0].lives, bytes(50, 300));
  EXPECT_EQ(shared.move(page(2), page(1)), page(2)) << "nobody has its memory any more";
  EXPECT_EQ(shared.frame_of(page(2)), page(1));
  EXPECT_FALSE(shared.is_dead(page(2) + 300));
  EXPECT_TRUE(shared.is_dead(page(2) + 299));
  EXPECT_TRUE(shared.is_dead(page(1) + 300));
  EXPECT_FALSE(shared.is_dead(page(0) + 300)) << "it shares with nobody";
}

TEST(SharedPages, MemoryIsFreeWhenItsLastPageLeaves) {
  SharedPages shared;
  shared.plan({{page(0), bytes(0, 10)}, {page(1), bytes(10, 15)}});
  EXPECT_EQ(shared.move(page(1), page(0)), page(1));
  EXPECT_EQ(shared.leave(page(0)), std::nullopt) << "another page is there";
  EXPECT_EQ(shared.frame_of(page(1)), page(0));
  EXPECT_EQ(shared.leave(page(1)), page(0));
  EXPECT_EQ(shared.leave(page(7)), page(7)) << "one that never shared";
}

// What the kernel and the monitor do with it, in a few bytes: memory by its home, and pages that
// are mapped to it.
class Model {
 public:
  explicit Model(unsigned seed) : random_(seed) {}

  void add_page(uint64_t number) {
    Page& one = pages_[page(number)];
    one.frame = page(number);
    const uint64_t ranges = 1 + pick(3);
    for (uint64_t i = 0; i < ranges; ++i) {
      const uint64_t begin = pick(kPageBytes);
      one.lives |= bytes(begin, std::min(kPageBytes, begin + 1 + pick(900)));
    }
    for (uint64_t i = 0; i < kPageBytes; ++i) {
      one.contents[i] = static_cast<uint8_t>(number * 31 + i * 7 + 1);
    }
    memory_[page(number)] = one.contents;
  }

  void let_some_die() {
    for (auto& [address, one] : pages_) {
      if (pick(3) == 0) one.lives &= bytes(pick(kPageBytes), kPageBytes);
    }
  }

  void give_back_the_dead() {
    for (auto it = pages_.begin(); it != pages_.end();) {
      if (it->second.lives.any()) {
        ++it;
        continue;
      }
      free_if(shared_.leave(it->first));
      it = pages_.erase(it);
    }
  }

  void share() {
    std::vector<SharedPages::Living> living;
    for (const auto& [address, one] : pages_) living.push_back({address, one.lives});
    const SharedPages::Plan plan = shared_.plan(living);
    for (const SharedPages::Host& host : plan.hosts) {
      for (uint64_t i = 0; i < kPageBytes; ++i) {
        if (!host.lives[i]) memory_.at(host.home)[i] = 0xcc;
      }
    }
    for (const SharedPages::Move& move : plan.moves) {
      Page& one = pages_.at(move.page);
      for (uint64_t i = 0; i < kPageBytes; ++i) {
        if (move.lives[i]) memory_.at(move.to)[i] = memory_.at(one.frame)[i];
      }
      one.frame = move.to;
      free_if(shared_.move(move.page, move.to));
    }
  }

  void check() const {
    std::map<CacheAddr, int> users;
    for (const auto& [address, one] : pages_) {
      ASSERT_EQ(shared_.frame_of(address), one.frame);
      users[one.frame] += 1;
      const Memory& there = memory_.at(one.frame);
      for (uint64_t i = 0; i < kPageBytes; ++i) {
        if (!one.lives[i]) continue;
        ASSERT_EQ(there[i], one.contents[i]) << "page " << address.value() << ", byte " << i;
        ASSERT_FALSE(shared_.is_dead(address + static_cast<int64_t>(i)));
      }
    }
    ASSERT_EQ(users.size(), memory_.size()) << "memory that nobody has";
  }

  size_t pages() const { return pages_.size(); }
  size_t frames() const { return memory_.size(); }

 private:
  using Memory = std::vector<uint8_t>;
  struct Page {
    CacheAddr frame;
    SharedPages::Bytes lives;
    Memory contents = Memory(kPageBytes);
  };
  uint64_t pick(uint64_t below) { return random_() % below; }
  void free_if(std::optional<CacheAddr> home) {
    EXPECT_EQ(home ? memory_.erase(*home) : 1, 1u) << "memory that is not there";
  }

  std::mt19937_64 random_;
  SharedPages shared_;
  std::map<CacheAddr, Page> pages_;
  std::map<CacheAddr, Memory> memory_;
};

TEST(SharedPages, WhatLivesStaysThroughMany) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    Model model(seed);
    uint64_t next = 0;
    size_t pages = 0, frames = 0;
    for (int round = 0; round < 6; ++round) {
      for (int i = 0; i < 12; ++i) model.add_page(next++);
      model.share();
      ASSERT_NO_FATAL_FAILURE(model.check()) << "seed " << seed << ", round " << round;
      pages += model.pages();
      frames += model.frames();
      model.let_some_die();
      model.give_back_the_dead();
      ASSERT_NO_FATAL_FAILURE(model.check()) << "seed " << seed << ", round " << round;
    }
    EXPECT_LT(frames, pages * 9 / 10);
  }
}

TEST(SharedPages, NotMoreMappingsThanThereMayBe) {
  SharedPages shared;
  std::vector<SharedPages::Living> living;
  constexpr uint64_t kPages = SharedPages::kMovesMax + 1000;
  for (uint64_t i = 0; i < kPages; ++i) living.push_back({page(i), bytes(i % 4096, i % 4096 + 1)});
  EXPECT_EQ(shared.plan(living).moves.size(), SharedPages::kMovesMax);
}

}  // namespace
