// Counters get numbers that nobody else has, in the part of a page that suits what is expected.
#include "cache/counter_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "translate/layout.h"

namespace {

using namespace tally;
using engine::CounterNumbers;
using engine::Expected;
namespace tcb = translate::tcb;

uint32_t place_in_page(uint32_t number) {
  return translate::counter_offset(number) % 4096;
}
uint32_t page_of(uint32_t number) {
  return translate::counter_offset(number) / 4096;
}

// These lie among others.
void take_first_seldom(CounterNumbers& numbers) {
  const uint32_t page = page_of(numbers.take(Expected::kSome));
  uint32_t i = 0;
  while (page_of(numbers.take(Expected::kSeldom)) == page) ++i;
  EXPECT_GT(i, 400u);
}

TEST(CounterNumbers, EachIsItsOwnAndLiesWhereItShould) {
  constexpr Expected kAll[] = {Expected::kIdle, Expected::kSeldom, Expected::kSome,
                               Expected::kBusy};
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    CounterNumbers numbers;
    take_first_seldom(numbers);
    std::set<uint32_t> seen;
    std::set<uint32_t> idle_pages, seldom_pages, other_pages;
    constexpr uint32_t kCount = 20'000;
    for (uint32_t i = 0; i < kCount; ++i) {
      const Expected expected = kAll[random() % std::size(kAll)];
      const uint32_t number = numbers.take(expected);
      EXPECT_TRUE(seen.insert(number).second) << number << " twice, seed " << seed;
      const uint32_t place = place_in_page(number);
      EXPECT_LT(place, tcb::kHotSlots);
      EXPECT_TRUE(expected != Expected::kBusy || place >= tcb::kCalmEnd) << place;
      auto& pages = expected == Expected::kIdle     ? idle_pages
                    : expected == Expected::kSeldom ? seldom_pages
                                                    : other_pages;
      pages.insert(page_of(number));
    }
    for (const uint32_t page : idle_pages) EXPECT_FALSE(other_pages.contains(page)) << page;
    for (const uint32_t page : seldom_pages) {
      EXPECT_FALSE(idle_pages.contains(page) || other_pages.contains(page)) << page;
    }
  }
}

// Pages of one kind lie side by side, in few groups; and few numbers are left out for that.
TEST(CounterNumbers, PagesOfAKindLieTogether) {
  for (const uint32_t count : {100u, 5'000u, 100'000u}) {
    CounterNumbers numbers;
    take_first_seldom(numbers);
    std::set<uint32_t> seldom_pages;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; ++i) {
      seldom_pages.insert(page_of(numbers.take(Expected::kSeldom)));
      for (const Expected expected : {Expected::kIdle, Expected::kSome}) {
        last = std::max(last, numbers.take(expected));
      }
    }
    uint32_t groups = 0;
    for (const uint32_t page : seldom_pages) groups += seldom_pages.contains(page - 1) ? 0 : 1;
    EXPECT_LE(groups, 1 + seldom_pages.size() / CounterNumbers::kGroupMin) << count;
    EXPECT_LE(groups, 4 + seldom_pages.size() / CounterNumbers::kGroupMax) << count;
    const uint32_t wasted = 3 * CounterNumbers::kGroupMax * CounterNumbers::kPageCounters;
    EXPECT_LE(last, 3 * count + 3 * count / 32 + wasted) << count;
  }
}

// Those given before are nobody else's, and their pages are not gone on with.
TEST(CounterNumbers, BeginAgainOnPagesOfTheirOwn) {
  constexpr Expected kAll[] = {Expected::kIdle, Expected::kSeldom, Expected::kSome,
                               Expected::kBusy};
  std::mt19937 random(1);
  CounterNumbers numbers;
  std::set<uint32_t> seen, pages_before;
  for (uint32_t round = 0; round < 5; ++round) {
    std::set<uint32_t> pages;
    for (uint32_t i = 0; i < 3000; ++i) {
      const uint32_t number = numbers.take(kAll[random() % std::size(kAll)]);
      EXPECT_TRUE(seen.insert(number).second) << number << " twice, round " << round;
      pages.insert(page_of(number));
    }
    for (const uint32_t page : pages) EXPECT_FALSE(pages_before.contains(page)) << page;
    pages_before.merge(pages);
    numbers.begin_again();
  }
}

// What is not busy fills the pages of what is before it begins others.
TEST(CounterNumbers, NoPageIsBegunWhileThereIsRoom) {
  CounterNumbers numbers;
  constexpr uint32_t kBusyOfPage = (tcb::kHotSlots - tcb::kCalmEnd) / 8;
  constexpr uint32_t kOthersOfPage = tcb::kCalmEnd / 8;
  std::set<uint32_t> pages;
  for (uint32_t i = 0; i < kBusyOfPage; ++i) pages.insert(page_of(numbers.take(Expected::kBusy)));
  EXPECT_EQ(pages.size(), 1u);
  for (uint32_t i = 0; i < kOthersOfPage; ++i) {
    pages.insert(page_of(numbers.take(Expected::kSome)));
  }
  EXPECT_EQ(pages.size(), 1u);
  pages.insert(page_of(numbers.take(Expected::kSome)));
  pages.insert(page_of(numbers.take(Expected::kBusy)));
  EXPECT_EQ(pages.size(), 3u);
}

// Blocks 0 -> 1 (taken 255), 0 -> 2 (taken never), 1 -> EXIT, 2 -> EXIT.
cfg::Procedure branching() {
  cfg::Procedure procedure;
  procedure.blocks.edit().resize(3);
  procedure.blocks.edit()[0].edge_count = 2;
  procedure.blocks.edit()[1].first_edge = procedure.blocks.edit()[2].first_edge = 2;
  procedure.edges.edit().resize(2);
  procedure.edges.edit()[0].from = procedure.edges.edit()[1].from = 0;
  procedure.edges.edit()[0].to = 1;
  procedure.edges.edit()[1].to = 2;
  return procedure;
}

TEST(ExpectedOfCounters, GoesByTheStepOfTheEdgeOrOfTheBlocksEdges) {
  const cfg::Procedure procedure = branching();
  translate::Plan plan;
  plan.block_counter = {1, translate::kNoCounter, 0};
  plan.edge_counter = {2, 3};
  const uint8_t often_and_never[] = {255, 0};
  // A million: heaviest_bits is 20.
  const engine::ExpectedCounts expected =
      engine::expected_counts(procedure, plan, 4, often_and_never, 20);
  const std::vector<Expected> wanted = {Expected::kIdle, Expected::kBusy, Expected::kBusy,
                                        Expected::kIdle};
  EXPECT_EQ(expected.counters, wanted);
  EXPECT_EQ(expected.busy_blocks, (std::vector{true, true, false}));
}

TEST(ExpectedOfCounters, GoesByTheCount) {
  const cfg::Procedure procedure = branching();
  translate::Plan plan;
  plan.block_counter.assign(3, translate::kNoCounter);
  plan.edge_counter = {0, 1};
  // The second edge has run half as often for each 16 steps.
  for (const auto& [bits, step, wanted] : {std::tuple(20u, 255 - 6 * 16, Expected::kBusy),
                                           {20u, 255 - 7 * 16, Expected::kSome},
                                           {14u, 255, Expected::kBusy},
                                           {13u, 255, Expected::kSome},
                                           {13u, 255 - 5 * 16, Expected::kSome},
                                           {13u, 255 - 6 * 16, Expected::kSeldom},
                                           {20u, 1, Expected::kSeldom},
                                           {7u, 255, Expected::kSeldom}}) {
    const uint8_t steps[] = {255, static_cast<uint8_t>(step)};
    EXPECT_EQ(engine::expected_counts(procedure, plan, 2, steps, bits).counters[1], wanted)
        << bits << " bits, step " << step;
  }
}

TEST(ExpectedOfCounters, ABlockIsLedToByTheJumpThatLeadsThereMost) {
  // Blocks 0 and 1 jump through tables to 2 and 3; nothing else leads there.
  cfg::Procedure procedure;
  procedure.blocks.edit().resize(4);
  translate::Plan plan;
  plan.block_counter.assign(4, translate::kNoCounter);
  for (const auto& [from, to] : {std::pair(0u, 2u), {1u, 2u}, {0u, 3u}, {1u, 3u}}) {
    cfg::Edge& edge = procedure.edges.edit().emplace_back();
    edge.from = from;
    edge.to = to;
    edge.kind = cfg::EdgeKind::kTableJump;
  }
  plan.edge_counter.assign(4, translate::kNoCounter);
  constexpr uint32_t kNone = translate::EmitRequest::kNotLed;
  const uint8_t steps[] = {200, 255, 255 - 7 * 16, 0};
  const auto led_from = [&](uint32_t bits) {
    return engine::expected_counts(procedure, plan, 0, steps, bits).led_from;
  };
  EXPECT_EQ(led_from(30), (std::vector{kNone, kNone, 1u, 0u}));
  EXPECT_EQ(led_from(20), (std::vector{kNone, kNone, 1u, kNone})) << "seldom";
  EXPECT_TRUE(led_from(13).empty()) << "seldom, all of them";
}

TEST(ExpectedOfCounters, ABlockWithoutEdgesRunsAsOftenAsItsProcedure) {
  cfg::Procedure procedure;
  procedure.blocks.edit().resize(1);
  translate::Plan plan;
  plan.block_counter = {0};
  EXPECT_EQ(engine::expected_counts(procedure, plan, 1, {}, 20).counters[0], Expected::kBusy);
  EXPECT_EQ(engine::expected_counts(procedure, plan, 1, {}, 20).busy_blocks, std::vector{true});
  EXPECT_EQ(engine::expected_counts(procedure, plan, 1, {}, 3).counters[0], Expected::kSeldom);
  EXPECT_TRUE(engine::expected_counts(procedure, plan, 1, {}, 3).busy_blocks.empty());
}

}  // namespace
