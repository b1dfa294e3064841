// The sum of two runs of one program, in both orders.
#include <gtest/gtest.h>

#include "profile/checks.h"
#include "profile/merge.h"
#include "profile_sample.h"

namespace tally::profile {
namespace {

using Facts = std::vector<std::pair<std::string, std::string>>;

Profile run_number(uint32_t number, Facts more) {
  Profile profile = sample_profile();
  profile.run.number = number;
  profile.run.more = std::move(more);
  profile.issues = {{"process 12", "was not followed", number}};
  return profile;
}

Profile sum_of(const Profile& a, const Profile& b) {
  Merger merger;
  merger.add(a);
  merger.add(b);
  return merger.result();
}

TEST(Merge, CountsAreSums) {
  const Profile one = run_number(1, {});
  const Profile sum = sum_of(one, run_number(2, {}));
  ASSERT_EQ(sum.blocks.size(), one.blocks.size());
  for (size_t i = 0; i < one.blocks.size(); ++i) {
    EXPECT_EQ(sum.blocks[i].count, 2 * one.blocks[i].count);
  }
  ASSERT_EQ(sum.edges.size(), one.edges.size());
  for (size_t i = 0; i < one.edges.size(); ++i) {
    EXPECT_EQ(sum.edges[i].count, 2 * one.edges[i].count);
  }
  EXPECT_EQ(sum.threads.size(), 2 * one.threads.size());
  EXPECT_EQ(sum.run.counter_increments, 2 * one.run.counter_increments);
  ASSERT_EQ(sum.issues.size(), 1u);
  EXPECT_EQ(sum.issues[0].amount, 3u);
  EXPECT_EQ(check_flow(sum).faults_total, 0u);
}

// Numbers of things are sums like all others; what is no number is the first run's.
TEST(Merge, FreeFacts) {
  const Profile one = run_number(1, {{"pairs", "182"}, {"form", "jump"}, {"only_here", "7"}});
  const Profile two = run_number(2, {{"only_there", "5"}, {"form", "paired"}, {"pairs", "18"}});
  for (const Profile& sum : {sum_of(one, two), sum_of(two, one)}) {
    EXPECT_EQ(sum.run.number, 1u);
    EXPECT_EQ(sum.run.more,
              (Facts{{"pairs", "200"}, {"form", "jump"}, {"only_here", "7"}, {"only_there", "5"}}));
  }
}

}  // namespace
}  // namespace tally::profile
