#include "base/sieve.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_set>

namespace {

using tally::Sieve;

TEST(Sieve, HasAllThatWasAddedAndHardlyAnythingElse) {
  for (const size_t keys : {size_t{1}, size_t{7}, size_t{1000}, size_t{100000}}) {
    std::mt19937_64 random(keys);
    Sieve sieve(8 * keys);
    std::unordered_set<uint64_t> added;
    for (size_t i = 0; i < keys; ++i) added.insert(random());
    for (const uint64_t key : added) sieve.add(key);
    for (const uint64_t key : added) EXPECT_TRUE(sieve.may_have(key));
    size_t wrong = 0;
    constexpr size_t kOthers = 10000;
    for (size_t i = 0; i < kOthers; ++i) {
      const uint64_t key = random();
      wrong += sieve.may_have(key) && !added.contains(key) ? 1 : 0;
    }
    EXPECT_LT(wrong, kOthers / 5) << keys;
  }
}

TEST(Sieve, WithoutKeysHasNone) {
  EXPECT_FALSE(Sieve().may_have(0));
  EXPECT_FALSE(Sieve().may_have(~0ull));
}

}  // namespace
