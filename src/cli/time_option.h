// Options that say a time, alike for every command that has one.
#pragma once

#include <chrono>
#include <string>

#include "base/result.h"

namespace tally::cli {

// "10s", "500ms", "2m", "1h"; a number alone is seconds.  `option` names itself in the error.
Result<std::chrono::nanoseconds> parse_time(const std::string& option, const std::string& text);

}  // namespace tally::cli
