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

}  // namespace
}  // namespace tally::tracee
