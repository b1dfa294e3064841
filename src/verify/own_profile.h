// What only our own profile can say, and the common form of claims cannot.
//
// A block's count in our file says how often the block was entered, frames that a fork or vfork
// child takes over from its parent included: their blocks were entered, in another process, and
// the corrections of `partial_runs` say that none of it was executed again.  The monitor tells of
// executions only.  So both sides are brought to the count of each block's first instruction.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/result.h"

namespace tally::verify {

struct Correction {
  std::string module;
  LinkAddr block;
  int64_t first_instruction = 0;  // executions to add to the block's count
  int64_t last_instruction = 0;
};

// Of all runs, or of one; as the profile has them, not summed up.
Result<std::vector<Correction>> corrections_of(const std::string& path,
                                               std::optional<uint32_t> run);

}  // namespace tally::verify
