// Words and bytes folded into the state of a digest that tells things apart within one program
// version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tally {

inline uint64_t mix(uint64_t state, uint64_t word) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  state = (state ^ word) * kFactor;
  return state ^ state >> 32;
}

// Multiply and fold, a word at a time; missing bytes of the last word count as zeros.
inline uint64_t mix_bytes(uint64_t state, std::span<const uint8_t> bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15ull;
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t step = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), step);
    bytes = bytes.subspan(step);
    const auto product = static_cast<unsigned __int128>(state ^ word) * kFactor;
    state = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    state += word;  // a state that happens to be zero must not swallow what follows
  }
  return state;
}

}  // namespace tally
