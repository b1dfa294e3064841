// Names of generated code from /tmp/perf-PID.map: the forms compilers write, and hostile lines.
#include "ledger/perf_map.h"

#include <gtest/gtest.h>

namespace {

using tally::TargetAddr;
using tally::engine::PerfMap;

TEST(PerfMap, FormsOfV8AndHotSpot) {
  const PerfMap map = PerfMap::parse(
      "18c4000 300 Builtin:DeoptimizationEntry_Eager\n"
      "0x00007f08d0ec71c0 0x0000000000000270 java.lang.Object get(java.lang.Object, long)\n");
  EXPECT_EQ(map.size(), 2u);
  EXPECT_EQ(map.name_at(TargetAddr(0x18c42ff)), "Builtin:DeoptimizationEntry_Eager");
  EXPECT_EQ(map.name_at(TargetAddr(0x18c4300)), "");
  EXPECT_EQ(map.name_at(TargetAddr(0x7f08d0ec71c0)),
            "java.lang.Object get(java.lang.Object, long)");
}

TEST(PerfMap, LaterLinesReplaceWhatTheyOverlap) {
  const PerfMap map = PerfMap::parse("1000 100 old\n1080 100 new\n");
  EXPECT_EQ(map.name_at(TargetAddr(0x1000)), "");
  EXPECT_EQ(map.name_at(TargetAddr(0x1080)), "new");
}

TEST(PerfMap, LinesThatDoNotParseAreSkipped) {
  const PerfMap map = PerfMap::parse(
      "zz 10 a\n10 zz b\n10 0 c\n0xffffffffffffffff 10 d\n\n10\n0x 10 e\n20 10 good");
  EXPECT_EQ(map.size(), 1u);
  EXPECT_EQ(map.name_at(TargetAddr(0x25)), "good");
}

}  // namespace
