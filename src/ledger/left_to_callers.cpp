// See left_to_callers.h.
#include "ledger/left_to_callers.h"

#include <algorithm>

namespace tally::engine {

LeftToCallers::LeftToCallers(const Translated& translated) : translated_(&translated) {
  for (const auto& unit : translated.units()) {
    if (!unit->left_to_callers()) continue;
    by_entry_.set(unit->module->key_of(unit->procedure.entry), unit->id);
    units_.push_back(unit->id);
  }
  std::ranges::stable_sort(units_, {}, [&](uint32_t id) { return translated.unit(id).rank; });
}

}  // namespace tally::engine
