// See patience.h.
#include "engine/patience.h"

#include <algorithm>

namespace tally::engine {

void Patience::note(Duration apart) {
  constexpr double kWeight = 0.1;  // of the latest
  for (size_t i = 0; i < kLengths.size(); ++i) {
    const Duration cost = apart <= kLengths[i] ? apart : kLengths[i] + kSleepCost;
    costs_[i] += kWeight * (static_cast<double>(cost.count()) - costs_[i]);
  }
  best_ = static_cast<size_t>(std::ranges::min_element(costs_) - costs_.begin());
}

}  // namespace tally::engine
