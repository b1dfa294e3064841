// See time_option.h.
#include "cli/time_option.h"

#include <cstdint>
#include <exception>
#include <map>

namespace tally::cli {

Result<std::chrono::nanoseconds> parse_time(const std::string& option, const std::string& text) {
  static const std::map<std::string, double> kSeconds = {
      {"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"h", 3600}};
  size_t used = 0;
  double value = -1;
  try {
    value = std::stod(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  const auto unit = kSeconds.find(text.substr(used));
  constexpr double kSecondsMax = 1e9;
  if (used == 0 || unit == kSeconds.end() || !(value > 0) || value * unit->second > kSecondsMax) {
    return make_error(ErrorKind::kUsage, "{}={}: must be a time like 10s, 500ms or 2m", option,
                      text);
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(value * unit->second * 1e9));
}

}  // namespace tally::cli
