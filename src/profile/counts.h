// Counts of instructions, from counts of blocks.
//
// A block's instructions run as often as the block, except where a partial run says otherwise: a
// fault in the middle, a thread that began there.  Sums over a whole profile are 128 bits wide,
// since every single count may be any 64-bit number.
#pragma once

#include <cstdint>
#include <vector>

#include "profile/model.h"

namespace tally::profile {

using WideCount = unsigned __int128;

// One per instruction; may be negative or wider than 64 bits before the profile is validated.
std::vector<__int128> instruction_counts(const Block& block);

// Instructions executed in the block.  The block belongs to a validated profile; an unknown count
// contributes nothing (who prints the sum says so).
WideCount instructions_executed(const Block& block);

}  // namespace tally::profile
