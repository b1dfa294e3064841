// Profiles that come packed (`gcov --json-format` writes .gcov.json.gz).
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace tally::claims {

bool is_gzip(std::string_view bytes);
// Errors: damaged, cut short, or larger than any profile of this kind is.
Result<std::string> gunzip(const std::string& path, std::string_view bytes);

}  // namespace tally::claims
