#include "tracee/proc_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace tally::tracee {
namespace {

TEST(ProcFiles, FieldsOfAStatus) {
  const std::string status = "Name:\tState: odd\nState:\tS (sleeping)\nGroups:\t\nSigCgt:\t00ff";
  EXPECT_EQ(status_field(status, "Name"), "State: odd");
  EXPECT_EQ(status_field(status, "State"), "S (sleeping)");
  EXPECT_EQ(status_field(status, "Groups"), "");
  EXPECT_EQ(status_field(status, "SigCgt"), "00ff");
  EXPECT_EQ(status_field(status, "Sig"), "");
  EXPECT_EQ(status_field("", "Name"), "");
}

TEST(ProcFiles, ThisProcess) {
  EXPECT_EQ(status_field(status_of(getpid()), "Pid"), std::to_string(getpid()));
  EXPECT_EQ(contents_of("/proc/0/status"), "");
}

TEST(ProcFiles, TheHeapOfThisProcess) {
  const std::optional<uint64_t> begin = heap_begin_of(getpid());
  ASSERT_TRUE(begin.has_value());
  EXPECT_LE(*begin, reinterpret_cast<uint64_t>(sbrk(0)));
  EXPECT_GT(*begin, 0u);
  EXPECT_FALSE(heap_begin_of(0).has_value());
}

}  // namespace
}  // namespace tally::tracee
