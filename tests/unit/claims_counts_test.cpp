// Sums of claimed counts: an impossible one is never hidden by another, in any reader or judge.
#include "claims/counts.h"

#include <gtest/gtest.h>

#include "claims/read.h"
#include "profile_sample.h"
#include "verify/truth.h"

namespace tally::claims {
namespace {

constexpr uint64_t kHalf = uint64_t{1} << 63;
constexpr auto kMinusOne = static_cast<uint64_t>(-1);

TEST(Counts, ImpossibleOnesStaySo) {
  EXPECT_EQ(joined(7, 8), 15u);
  EXPECT_EQ(joined(kCountMax, 0), kCountMax);
  EXPECT_EQ(joined(kHalf, kHalf), kHalf);      // as a wrapped sum: 0
  EXPECT_EQ(joined(kMinusOne, 5), kMinusOne);  // 4
  EXPECT_EQ(joined(5, kMinusOne), kMinusOne);
  EXPECT_TRUE(is_impossible(joined(kCountMax, 1)));
  EXPECT_TRUE(is_impossible(INT64_MAX));  // of llvm-cov
  EXPECT_TRUE(is_impossible(joined(joined(kCountMax, kCountMax), kCountMax)));
  EXPECT_EQ(corrected(7, -2), 5u);
  EXPECT_TRUE(is_impossible(corrected(1, -2)));
  EXPECT_EQ(corrected(kHalf, -1), kHalf);
  EXPECT_EQ(corrected(kMinusOne, 5), kMinusOne);
}

TEST(Counts, GcovDocumentsOfOneLine) {
  const profile::TemporaryFolder folder;
  const auto document = [](const std::string& count) {
    return R"({"gcc_version": "12.2.0", "files": [{"file": "a.c", "functions": [{"name": "f", )"
           R"("execution_count": )" +
           count +
           R"(, "start_line": 1, "blocks": 2, "blocks_executed": 2}], )"
           R"("lines": [{"line_number": 1, "function_name": "f", "count": )" +
           count + R"(, "branches": []}]}]})";
  };
  const std::string path = folder.file("two.json");
  profile::write_whole(path, document("-1247") + "\n" + document("5000") + "\n");
  const auto claims = read_claims(path, {});
  ASSERT_TRUE(claims.ok()) << claims.error().message;
  ASSERT_EQ(claims->lines.size(), 1u);
  EXPECT_EQ(claims->lines[0].count, static_cast<uint64_t>(-1247));
  ASSERT_EQ(claims->procedures.size(), 1u);
  EXPECT_EQ(claims->procedures[0].count, static_cast<uint64_t>(-1247));
}

// Two claims about one place that would wrap to what was counted there.
class JudgedTwice : public testing::TestWithParam<std::pair<uint64_t, uint64_t>> {
 protected:
  void SetUp() override {
    claims_.form = Form::kFdata;
    claims_.modules.push_back({.path = "/p", .build_id = {}, .main_program = true});
    const uint64_t counted = GetParam().first + GetParam().second;
    verify::TruthModule& module = truth_.modules["/p"];
    module.instructions[0x10] = {static_cast<int64_t>(counted), false};
    module.blocks[0x10] = counted;
    verify::TruthEdge edge{LinkAddr(0x10), LinkAddr(0x10),    "/p",
                           LinkAddr(0x20), EdgeRole::kBranch, counted};
    module.by_last[0x10].push_back(edge);
    for (const uint64_t count : {GetParam().first, GetParam().second}) {
      claims_.blocks.push_back({.begin = at_, .count = count});
      claims_.instructions.push_back({.at = at_, .count = count});
      claims_.procedures.push_back({.entry = at_, .count = count});
      claims_.edges.push_back({.from = at_, .to = {0, LinkAddr(0x20)}, .count = count});
    }
  }

  const Place at_{0, LinkAddr(0x10)};
  Claims claims_;
  verify::Truth truth_;
};

TEST_P(JudgedTwice, NothingIsHidden) {
  for (const bool complete : {true, false}) {
    verify::Judgement judgement;
    verify::judge(claims_, truth_, 0.5, complete, judgement);
    EXPECT_EQ(judgement.blocks.wrong, 1u) << complete;
    EXPECT_EQ(judgement.instructions.wrong, 1u) << complete;
    EXPECT_EQ(judgement.procedures.wrong, 1u) << complete;
    EXPECT_EQ(judgement.edges.wrong, 1u) << complete;
  }
}

INSTANTIATE_TEST_SUITE_P(Wraps, JudgedTwice,
                         testing::Values(std::pair{kHalf, kHalf}, std::pair{kMinusOne, uint64_t{5}},
                                         std::pair{uint64_t{5}, kMinusOne}));

}  // namespace
}  // namespace tally::claims
