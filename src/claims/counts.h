// Arithmetic with counts that strangers claim.
//
// A count of 2^63 or more was negative or has overflowed: no program executes anything so often.
// For all of these llvm-cov writes 2^63 - 1, which therefore is one of them.  Such counts are kept
// as they are, for `check` and `verify` to name; so adding counts must never make a possible one of
// an impossible one, as wrapped sums would (2^63 + 2^63 = 0).
#pragma once

#include <cstdint>

namespace tally::claims {

inline constexpr uint64_t kCountMax = INT64_MAX - 1;

constexpr bool is_impossible(uint64_t count) {
  return count > kCountMax;
}

// The counts of one thing in two records: an impossible one stays as it is, a sum that is beyond
// the limit stays there.  (Two possible counts add up to less than 2^64.)
constexpr uint64_t joined(uint64_t a, uint64_t b) {
  if (is_impossible(a)) return a;
  return is_impossible(b) ? b : a + b;
}

// A count with what is known to be missing or left over; below zero it is impossible.
constexpr uint64_t corrected(uint64_t count, int64_t correction) {
  return is_impossible(count) ? count : count + static_cast<uint64_t>(correction);
}

}  // namespace tally::claims
