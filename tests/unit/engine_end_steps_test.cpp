// After how many steps a thread that goes one at a time is ended: engine/end_steps.h.
#include "engine/end_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::engine {
namespace {

constexpr CacheAddr kWaitBegin(0x100), kWaitEnd(0x110);

// How many of the steps of a thread that goes to `places` it takes to end it; 0: not ended.
size_t ended_at(uint64_t steps, const std::vector<uint64_t>& places) {
  EndSteps counted(steps, kWaitBegin, kWaitEnd);
  for (size_t i = 0; i < places.size(); ++i) {
    if (counted.is_end(CacheAddr(places[i]))) return i + 1;
  }
  return 0;
}

// Two instructions, a wait of so many steps, three instructions.
std::vector<uint64_t> with_wait(size_t steps) {
  std::vector<uint64_t> places = {0x90, 0xff};
  for (size_t i = 0; i < steps; ++i) places.push_back(i % 2 == 0 ? 0x100 : 0x10f);
  places.insert(places.end(), {0x110, 0x200, 0x201});
  return places;
}

TEST(EndSteps, CountsInstructions) {
  const std::vector<uint64_t> places = {0xff, 0x110, 1, 2};
  for (size_t steps = 1; steps <= 4; ++steps) EXPECT_EQ(ended_at(steps, places), steps);
  EXPECT_EQ(ended_at(5, places), 0u);
}

// What comes behind a wait has the same number, however long that was.
TEST(EndSteps, CountsEveryWaitAlike) {
  constexpr uint64_t kBehind = 2 + EndSteps::kStepsOfWait;
  for (const size_t waited : {1, 2, 7, 8, 9, 50, 5000}) {
    const std::vector<uint64_t> places = with_wait(waited);
    EXPECT_EQ(ended_at(2, places), 2u);
    for (size_t behind = 1; behind <= 3; ++behind) {
      EXPECT_EQ(ended_at(kBehind + behind, places), 2 + waited + behind);
    }
    EXPECT_EQ(ended_at(kBehind + 4, places), 0u);
  }
}

TEST(EndSteps, EndsInTheMiddleOfAWait) {
  for (size_t into = 1; into <= EndSteps::kStepsOfWait; ++into) {
    EXPECT_EQ(ended_at(2 + into, with_wait(5000)), 2 + into);
    // If it does not last as long, then at its end.
    EXPECT_EQ(ended_at(2 + into, with_wait(3)), 2 + std::min<size_t>(into, 4));
  }
}

TEST(EndSteps, CountsWaitsApart) {
  std::vector<uint64_t> places = with_wait(1);
  for (const uint64_t place : with_wait(20)) places.push_back(place);
  EXPECT_EQ(ended_at(2 * (5 + EndSteps::kStepsOfWait), places), places.size());
}

}  // namespace
}  // namespace tally::engine
