// See left_to_callers.h.
#include "ledger/left_to_callers.h"

#include <unordered_map>

namespace tally::engine {

LeftToCallers::LeftToCallers(const Translated& translated) : translated_(&translated) {
  for (const auto& unit : translated.units()) {
    if (!unit->from_callers) continue;
    by_entry_.set(unit->module->key_of(unit->procedure.entry), unit->id);
    units_.push_back(unit->id);
  }
}

LeftToCallers::Order LeftToCallers::callers_first() const {
  std::unordered_map<uint32_t, uint32_t> waits_for;  // by unit: branches of others of them
  for (const uint32_t id : units_) waits_for[id] = 0;
  const auto for_each_way = [&](uint32_t id, auto action) {
    const Unit& unit = translated_->unit(id);
    unit.for_each_branch_out([&](LinkAddr target) {
      if (const Unit* to = at(*unit.module, target)) action(to->id);
    });
  };
  for (const uint32_t id : units_) {
    for_each_way(id, [&](uint32_t to) { waits_for[to] += 1; });
  }
  Order order;
  for (const uint32_t id : units_) {
    if (waits_for[id] == 0) order.units.push_back(id);
  }
  for (size_t done = 0; done < order.units.size(); ++done) {
    for_each_way(order.units[done], [&](uint32_t to) {
      if (--waits_for[to] == 0) order.units.push_back(to);
    });
  }
  for (const uint32_t id : units_) {
    if (waits_for[id] != 0) order.circle.push_back(id);
  }
  return order;
}

}  // namespace tally::engine
