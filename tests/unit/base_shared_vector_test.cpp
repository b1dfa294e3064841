#include "base/shared_vector.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tally {
namespace {

TEST(SharedVector, NothingInIt) {
  const SharedVector<int> none;
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.begin(), none.end());
  EXPECT_TRUE(none.copied().empty());
}

TEST(SharedVector, CopiesShareUntilOneIsChanged) {
  SharedVector<int> a(std::vector{1, 2, 3});
  SharedVector<int> b = a;
  EXPECT_EQ(a.data(), b.data());
  b.edit()[1] = 7;
  EXPECT_NE(a.data(), b.data());
  EXPECT_TRUE(std::ranges::equal(a, std::vector{1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(b, std::vector{1, 7, 3}));
  // Nobody else's: it stays where it is.
  const int* const before = b.data();
  b.edit()[0] = 9;
  EXPECT_EQ(b.data(), before);
  EXPECT_EQ(b.front(), 9);
  EXPECT_EQ(b.back(), 3);
}

TEST(SharedVector, AnewLeavesOthersTheirs) {
  SharedVector<int> a(std::vector{1, 2, 3});
  const SharedVector<int> b = a;
  a.edit_anew().push_back(4);
  EXPECT_TRUE(std::ranges::equal(a, std::vector{4}));
  EXPECT_TRUE(std::ranges::equal(b, std::vector{1, 2, 3}));
  const size_t capacity = a.capacity();
  EXPECT_TRUE(a.edit_anew().empty());
  EXPECT_EQ(a.capacity(), capacity);
}

TEST(SharedVector, CopiedSharesNothing) {
  SharedVector<int> a;
  a.edit().reserve(100);
  a.edit().push_back(1);
  const SharedVector<int> b = a.copied();
  EXPECT_NE(a.data(), b.data());
  EXPECT_EQ(b.size(), 1u);
  EXPECT_EQ(b.capacity(), 1u);
  a.reset();
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(b[0], 1);
}

}  // namespace
}  // namespace tally
