// A word folded into the state of a digest that tells things apart within one program version.
#pragma once

#include <cstdint>

namespace tally {

inline uint64_t mix(uint64_t state, uint64_t word) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  state = (state ^ word) * kFactor;
  return state ^ state >> 32;
}

}  // namespace tally
