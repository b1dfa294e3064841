// Whether an address may be one that a call comes back to, by the bytes in front of it.
#pragma once

#include <cstdint>
#include <span>

namespace tally::isa {

inline constexpr size_t kCallBytesMax = 7;  // without prefixes, which do not matter here

// `before`: up to kCallBytesMax bytes in front of the address.  False: no near call of the
// processor's ends there, so none has pushed this address.
bool may_follow_call(std::span<const uint8_t> before);

}  // namespace tally::isa
