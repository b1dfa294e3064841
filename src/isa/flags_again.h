// Making the status flags again that a block has made.
//
// Problem.  Where an indirect jump goes is told by comparing, and the plain comparison changes the
// flags, which some target may look at.
//
// Idea.  The flags at the end of a block are those of one instruction in it.  If its operands are
// registers and nothing behind it has changed them, it can be executed once more:
//
//     add rbx, r10        what made the flags
//     lea rcx, [rbx+64]   changes neither flags nor rbx nor r10
//     jmp rax             made again by: sub rbx, r10; add rbx, r10
//
// Comparisons are executed again as they are, `add` and `sub` are undone first.  The flags of
// `and`, `or` and `xor` are those of their result: `test x, x` (where the carry and the overflow
// are clear as well; the adjust flag, which the manuals leave undefined for all four, is clear on
// all processors known).
//
// Not handled: results in memory or in rsp, summands in memory; shifts, multiplications, `inc` and
// whatever else; flags from before the block.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace tally::isa {

struct FlagsAgain {
  // Changes the status flags to what they were at the block's end, and no register.
  std::span<const uint8_t> code() const { return {bytes.data(), size_bytes}; }
  std::array<uint8_t, 16> bytes{};
  uint8_t size_bytes = 0;
  uint32_t insn = 0;  // the one that made them: for who begins behind it, they are others
};

// `insns`: the bytes of each instruction of a block but the jump that ends it.
std::optional<FlagsAgain> flags_again(std::span<const std::span<const uint8_t>> insns);

}  // namespace tally::isa
