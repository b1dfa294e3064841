// Which addresses a call may come back to, by the bytes in front of them.
#include "isa/call_before.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "isa/insn.h"

namespace tally::isa {
namespace {

bool follows(std::initializer_list<uint8_t> bytes) {
  return may_follow_call(std::vector<uint8_t>(bytes));
}

TEST(CallBefore, DirectAndIndirectCallsAreSeen) {
  EXPECT_TRUE(follows({0xe8, 0, 0, 0, 0}));
  EXPECT_TRUE(follows({0x90, 0x90, 0xe8, 1, 2, 3, 4}));
  EXPECT_TRUE(follows({0xff, 0xd0}));                    // call rax
  EXPECT_TRUE(follows({0x41, 0xff, 0xd4}));              // call r12
  EXPECT_TRUE(follows({0xff, 0x13}));                    // call [rbx]
  EXPECT_TRUE(follows({0xff, 0x14, 0xc3}));              // call [rbx + rax*8]
  EXPECT_TRUE(follows({0xff, 0x50, 0x18}));              // call [rax + 24]
  EXPECT_TRUE(follows({0xff, 0x54, 0x24, 0x08}));        // call [rsp + 8]
  EXPECT_TRUE(follows({0xff, 0x15, 1, 2, 3, 4}));        // call [rip + x]
  EXPECT_TRUE(follows({0xff, 0x90, 1, 2, 3, 4}));        // call [rax + x]
  EXPECT_TRUE(follows({0xff, 0x94, 0x24, 1, 2, 3, 4}));  // call [rsp + x]
  EXPECT_TRUE(follows({0xff, 0x14, 0x25, 1, 2, 3, 4}));  // call [x]
}

TEST(CallBefore, JumpsAndOtherInstructionsAreNot) {
  EXPECT_FALSE(follows({}));
  EXPECT_FALSE(follows({0xff}));
  EXPECT_FALSE(follows({0x48, 0x89, 0x48, 0x38, 0xc3, 0x55, 0xff, 0xe3}));  // jmp rbx
  EXPECT_FALSE(follows({0xff, 0x25, 1, 2, 3, 4}));                          // jmp [rip + x]
  EXPECT_FALSE(follows({0xff, 0x50}));                                      // cut off
  EXPECT_FALSE(follows({0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3}));
}

// Every form that the decoder takes for a near call through a register or memory is seen.
TEST(CallBefore, AgreesWithTheDecoder) {
  for (unsigned modrm = 0; modrm < 256; ++modrm) {
    for (unsigned sib = 0; sib < 256; ++sib) {
      const std::vector<uint8_t> bytes{
          0xff, static_cast<uint8_t>(modrm), static_cast<uint8_t>(sib), 0x11, 0x22, 0x33, 0x44,
          0x55};
      const Insn insn = decode(bytes, 0);
      if (insn.flow != Flow::kIndirectCall) continue;
      ASSERT_LE(insn.size, kCallBytesMax);
      EXPECT_TRUE(may_follow_call(std::span(bytes).first(insn.size))) << modrm << " " << sib;
    }
  }
}

}  // namespace
}  // namespace tally::isa
