// Instructions that move a register by a constant.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace tally::isa {

struct ConstantStep {
  uint8_t reg = 0;   // in encoding order, 0 to 15
  int64_t step = 0;  // not 0
};

// What `add`, `sub`, `inc`, `dec` or `lea` adds to a register of 64 bits, and to all 64 of them;
// nothing for any other instruction.
std::optional<ConstantStep> constant_step(std::span<const uint8_t> bytes);

// General registers that an instruction may write, by number, in whatever part; nothing if the
// bytes are no instruction.
std::optional<uint32_t> registers_written(std::span<const uint8_t> bytes);

}  // namespace tally::isa
