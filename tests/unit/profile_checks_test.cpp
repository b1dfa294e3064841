// Conservation of flow is recomputed from the profile, and every kind of damage is found.
#include "profile/checks.h"

#include <gtest/gtest.h>

#include "profile/counts.h"
#include "profile/validate.h"
#include "profile_sample.h"

namespace tally::profile {
namespace {

// Checks a copy of the sample after `damage`; expects exactly one fault.
template <class Damage>
void expect_fault(Damage damage, FlowRule rule, uint32_t id, const std::string& words) {
  Profile profile = sample_profile();
  damage(profile);
  ASSERT_TRUE(validate(profile));
  const FlowReport report = check_flow(profile);
  EXPECT_FALSE(report.balanced());
  ASSERT_EQ(report.faults_total, report.faults.size());
  EXPECT_EQ(count_flow_faults(profile), report.faults_total);
  bool found = false;
  for (const FlowFault& fault : report.faults) {
    if (fault.rule != rule || fault.id != id) continue;
    found = true;
    EXPECT_NE(describe(profile, fault).find(words), std::string::npos) << describe(profile, fault);
  }
  EXPECT_TRUE(found) << words;
}

TEST(FlowChecks, SampleIsBalanced) {
  const FlowReport report = check_flow(sample_profile());
  EXPECT_TRUE(report.balanced());
  EXPECT_EQ(report.blocks_checked, 5u);
  EXPECT_EQ(report.procedures_checked, 2u);
  EXPECT_TRUE(check_flow(Profile{}).balanced());
  EXPECT_EQ(count_flow_faults(sample_profile()), 0u);
  EXPECT_EQ(count_flow_faults(Profile{}), 0u);
}

TEST(FlowChecks, EveryKindOfDamageIsFound) {
  expect_fault([](Profile& p) { p.blocks[1].count = 11; }, FlowRule::kIn, 1,
               "block sample+0x1006: in-edges and abnormal entries give 10, its count is 11");
  expect_fault([](Profile& p) { p.blocks[2].count = 9; }, FlowRule::kOut, 2, "give 10");
  expect_fault([](Profile& p) { p.edges[3].count = 8; }, FlowRule::kIn, 1, "give 9");
  expect_fault([](Profile& p) { p.edges[3].count = 8; }, FlowRule::kOut, 2, "give 9");
  expect_fault([](Profile& p) { p.abnormal.pop_back(); }, FlowRule::kOut, 4, "give 0");
  expect_fault([](Profile& p) { p.abnormal[0].entered = 2; }, FlowRule::kIn, 0, "give 2");
  expect_fault([](Profile& p) { p.edges[1].count = 9; }, FlowRule::kCalls, 1, "made 9 calls");
  expect_fault([](Profile& p) { p.edges[1].count = 11; }, FlowRule::kCalls, 1, "made 11 calls");
  expect_fault([](Profile& p) { p.procedures[1].entries = 12; }, FlowRule::kEntries, 1,
               "procedure sample+0x2000: calls, jumps and abnormal entries give 10, its entries "
               "are 12");
  expect_fault([](Profile& p) { p.procedures[0].entries = 0; }, FlowRule::kEntries, 0, "give 1");
  expect_fault([](Profile& p) { p.blocks[3].returns = false; }, FlowRule::kOut, 3, "give 0");
}

TEST(FlowChecks, ReturningBlocksMayLoseFlowButNotCreateIt) {
  Profile profile = sample_profile();
  profile.edges.push_back({3, 4, EdgeKind::kJump, 11, CountSource::kMeasured});
  const FlowReport report = check_flow(profile);
  ASSERT_FALSE(report.faults.empty());
  EXPECT_EQ(report.faults[0].rule, FlowRule::kOut);
  EXPECT_EQ(report.faults[0].id, 3u);
}

TEST(FlowChecks, CallsThatNeverCameBackAreLeftTerms) {
  Profile profile = sample_profile();
  // The tenth call of leaf ended the program.
  profile.edges[2].count = 9;
  profile.blocks[2].count = 9;
  profile.blocks[4].count = 0;
  profile.edges[4].count = 0;
  profile.abnormal[1] = {1, AbnormalKind::kProgramExit, 0, 1, ""};
  profile.abnormal.push_back({3, AbnormalKind::kProgramExit, 0, 1, ""});
  EXPECT_TRUE(check_flow(profile).balanced());
  // ... or a fault came before it.
  profile.edges[1].count = 9;
  profile.blocks[3].count = 9;
  profile.procedures[1].entries = 9;
  EXPECT_TRUE(check_flow(profile).balanced());
}

TEST(FlowChecks, JumpsFromOtherProceduresAreEntries) {
  Profile profile = sample_profile();
  // A tail call instead of the call.
  profile.edges[1].kind = EdgeKind::kJump;
  profile.edges[2].count = 0;
  EXPECT_EQ(check_flow(profile).procedures_checked, 2u);
  for (const FlowFault& fault : check_flow(profile).faults) {
    EXPECT_NE(fault.rule, FlowRule::kEntries);
  }
  // A loop back to the procedure's own entry is none.
  Profile loop = sample_profile();
  loop.procedures[0].entry = LinkAddr(0x1006);
  loop.blocks[0].procedure_id = 1;
  EXPECT_EQ(check_flow(loop).faults_total, 0u);
}

TEST(FlowChecks, UnknownCountsAreNeverCalledBalanced) {
  Profile profile = sample_profile();
  profile.blocks[2].source = CountSource::kUnknown;
  profile.blocks[2].count = 0;
  FlowReport report = check_flow(profile);
  EXPECT_FALSE(report.balanced());
  EXPECT_EQ(report.faults_total, 0u);
  EXPECT_EQ(report.undetermined, std::vector<uint32_t>{2});
  // An unknown edge leaves both its blocks undetermined; known flow above the count is a fault.
  profile = sample_profile();
  profile.edges[4] = {2, 4, EdgeKind::kFallthrough, 0, CountSource::kUnknown};
  report = check_flow(profile);
  EXPECT_EQ(report.faults_total, 0u);
  EXPECT_EQ(report.undetermined_total, 2u);
  profile.edges[3].count = 11;
  EXPECT_FALSE(check_flow(profile).faults.empty());
}

TEST(FlowChecks, OnlyTheFirstFaultsAreListed) {
  Profile profile = sample_profile();
  for (uint64_t i = 0; i < 30; ++i) make_block(profile, 0, 0x3000 + i, {1}, 1);
  const FlowReport report = check_flow(profile);
  EXPECT_EQ(report.faults_total, 60u);
  EXPECT_EQ(report.faults.size(), FlowReport::kListed);
}

TEST(FlowChecks, HugeCountsDoNotWrapAround) {
  Profile profile = sample_profile();
  profile.edges[0].count = 0xffffffffffffffff;
  profile.edges[3].count = 11;  // modulo 2^64 the sum would be 10
  EXPECT_GE(check_flow(profile).faults_total, 1u);
}

TEST(Counts, PartialRunsAdjustSingleInstructions) {
  Profile profile = sample_profile();
  Block& block = profile.blocks[0];
  block.count = 5;
  block.partial = {{1, 3, -1}, {0, 2, 2}};
  EXPECT_EQ(instruction_counts(block), (std::vector<__int128>{7, 6, 4}));
  EXPECT_EQ(static_cast<uint64_t>(instructions_executed(block)), 17u);
  block.source = CountSource::kUnknown;
  EXPECT_EQ(static_cast<uint64_t>(instructions_executed(block)), 0u);
}

}  // namespace
}  // namespace tally::profile
