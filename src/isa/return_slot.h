// Where the address lies that a return pops, followed backwards through straight code; and returns
// that are jumps.
#pragma once

#include <cstdint>
#include <span>

namespace tally::isa {

struct ReturnSlot {
  int64_t distance = 0;     // from the stack pointer at some instruction
  bool is_written = false;  // behind that instruction
};

// From behind an instruction at `address` to in front of it.  False: the stack pointer cannot be
// followed through it, and `slot` means nothing any more.
bool step_back(std::span<const uint8_t> bytes, uint64_t address, ReturnSlot& slot);

// Whether straight code with an indirect jump at its end returns by it: it jumps to what it pops
// right before and has not pushed itself.  Compilers end procedures so against load value injection
// (`pop rcx; lfence; jmp rcx`), and people by hand.
bool returns_by_jump(std::span<const std::span<const uint8_t>> insns);

}  // namespace tally::isa
