// The text of instructions, in both syntaxes, and the refusal of bytes that are not one
// instruction.
#include "isa/format.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::isa {
namespace {

std::optional<std::string> text(std::vector<uint8_t> bytes, Syntax syntax = Syntax::kIntel) {
  return format_exactly(bytes, 0x401000, syntax);
}

TEST(Format, BothSyntaxes) {
  EXPECT_EQ(text({0x48, 0x89, 0xe5}), "mov rbp, rsp");
  EXPECT_EQ(text({0x48, 0x89, 0xe5}, Syntax::kAtt), "mov %rsp, %rbp");
}

TEST(Format, BranchTargetsAreAbsolute) {
  EXPECT_EQ(text({0xe8, 0xfb, 0x0f, 0, 0}), "call 0x0000000000402000");
}

TEST(Format, BytesThatAreNotExactlyOneInstructionHaveNoText) {
  EXPECT_EQ(text({}), std::nullopt);
  EXPECT_EQ(text({0x06}), std::nullopt) << "no instruction";
  EXPECT_EQ(text({0x48, 0x89}), std::nullopt) << "too short";
  EXPECT_EQ(text({0x90, 0x90}), std::nullopt) << "two instructions";
}

}  // namespace
}  // namespace tally::isa
