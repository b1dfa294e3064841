// How long the monitor spins for the next request: engine/patience.h.
#include "engine/patience.h"

#include <gtest/gtest.h>

namespace tally::engine {
namespace {

using std::chrono::microseconds;

Patience after(int times, Patience::Duration apart) {
  Patience patience;
  for (int i = 0; i < times; ++i) patience.note(apart);
  return patience;
}

TEST(Patience, SpinsLongWhileNothingIsKnown) {
  EXPECT_GE(Patience().spin(), Patience::kSleepCost);
}

TEST(Patience, SpinsForWhatComesSoon) {
  EXPECT_GE(after(30, microseconds(10)).spin(), microseconds(10));
  EXPECT_GE(after(30, microseconds(35)).spin(), microseconds(35));
}

TEST(Patience, DoesNotSpinForWhatComesLate) {
  EXPECT_LE(after(30, microseconds(300)).spin(), microseconds(2));
}

// What comes later than a sleep costs, if only a little, is worth no spinning.
TEST(Patience, SleepsWhereThatIsCheaper) {
  EXPECT_LE(after(30, Patience::kSleepCost + microseconds(5)).spin(), microseconds(2));
}

TEST(Patience, LearnsWithinAFewRequests) {
  Patience patience = after(100, microseconds(5));
  for (int i = 0; i < 25; ++i) patience.note(microseconds(400));
  EXPECT_LT(patience.spin(), microseconds(5));
  for (int i = 0; i < 40; ++i) patience.note(microseconds(25));
  EXPECT_GE(patience.spin(), microseconds(25));
}

// One request in four comes late, the others at once: nothing is won by spinning longer than for
// these.
TEST(Patience, SpinsAsLongAsPays) {
  Patience patience;
  for (int i = 0; i < 100; ++i) patience.note(microseconds(i % 4 == 3 ? 500 : 3));
  EXPECT_GE(patience.spin(), microseconds(3));
  EXPECT_LE(patience.spin(), microseconds(8));
}

}  // namespace
}  // namespace tally::engine
