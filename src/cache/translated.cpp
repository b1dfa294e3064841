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
  unit.procedure.edges.reset();
  unit.insn_sizes.reset();
}

}  // namespace tally::engine
