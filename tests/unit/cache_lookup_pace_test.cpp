// How many returns look their landing up before one asks: cache/lookup_pace.h.
#include "cache/lookup_pace.h"

#include <gtest/gtest.h>

namespace tally::engine {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class LookupPaceTest : public ::testing::Test {
 protected:
  void ask_after(microseconds apart) {
    now_ += apart;
    pace_.note(now_);
  }

  LookupPace::Clock::time_point now_ = LookupPace::Clock::time_point() + std::chrono::hours(1);
  LookupPace pace_{now_};
};

TEST_F(LookupPaceTest, FewAskUntilSomethingIsKnown) {
  EXPECT_EQ(pace_.lookups(), LookupPace::kSeldom);
}

TEST_F(LookupPaceTest, FewAskWhereLookupsAreFew) {
  for (int i = 0; i < 10; ++i) {
    ask_after(milliseconds(200));
    EXPECT_EQ(pace_.lookups(), LookupPace::kSeldom);
  }
}

// 32,768 lookups in 100 ms are 327,680 a second; 4,096 in 15 ms 273,067, and in 20 ms 204,800.
TEST_F(LookupPaceTest, ManyAskWhileLookupsAreMany) {
  for (int i = 0; i < 3; ++i) {
    ask_after(milliseconds(100));
    EXPECT_EQ(pace_.lookups(), LookupPace::kSeldom);
  }
  for (int i = 0; i < 10; ++i) {
    ask_after(i == 0 ? milliseconds(100) : milliseconds(15));
    EXPECT_EQ(pace_.lookups(), LookupPace::kOften);
  }
  for (int i = 0; i < 2; ++i) {
    ask_after(milliseconds(20));
    EXPECT_EQ(pace_.lookups(), LookupPace::kOften);
  }
  ask_after(milliseconds(20));
  EXPECT_EQ(pace_.lookups(), LookupPace::kSeldom);
}

TEST_F(LookupPaceTest, ASingleOneThatComesSoonSaysNothing) {
  for (int i = 0; i < 20; ++i) {
    ask_after(i % 2 == 0 ? microseconds(0) : milliseconds(400));
    EXPECT_EQ(pace_.lookups(), LookupPace::kSeldom);
  }
}

// By one number and by the other.
TEST_F(LookupPaceTest, ARateIsARate) {
  for (const double rate : {100'000.0, 300'000.0, 200'000.0, 2'000'000.0}) {
    const uint32_t wanted =
        rate > LookupPace::kLookupsPerSecond ? LookupPace::kOften : LookupPace::kSeldom;
    for (int i = 0; i < 10; ++i) {
      ask_after(microseconds(static_cast<int64_t>(pace_.lookups() / rate * 1e6)));
    }
    EXPECT_EQ(pace_.lookups(), wanted) << rate << " a second";
  }
}

}  // namespace
}  // namespace tally::engine
