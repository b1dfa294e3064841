// See translated.h.
#include "cache/translated.h"

namespace tally::engine {

TargetAddr Translated::address_of(BlockRef ref) const {
  const Unit& unit = *units_[ref.unit];
  return unit.module->to_target(unit.address_of(ref.block, ref.insn));
}

void Translated::release(uint32_t id) {
  Unit& unit = *units_[id];
  unit.code = translate::UnitCode();
  unit.plan = translate::Plan();
  std::vector<cfg::Edge>().swap(unit.procedure.edges);
  std::vector<uint8_t>().swap(unit.insn_sizes);
}

}  // namespace tally::engine
