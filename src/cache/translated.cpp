// See translated.h.
#include "cache/translated.h"

namespace tally::engine {

TargetAddr Translated::address_of(BlockRef ref) const {
  const Unit& unit = *units_[ref.unit];
  const cfg::Block& block = unit.procedure.blocks[ref.block];
  uint64_t offset = 0;
  for (uint32_t i = 0; i < ref.insn; ++i) offset += unit.insn_sizes[block.first_insn + i];
  return unit.module->to_target(unit.address_of(ref.block)) + offset;
}

void Translated::release(uint32_t id) {
  Unit& unit = *units_[id];
  unit.code = translate::UnitCode();
  unit.plan = translate::Plan();
  std::vector<cfg::Edge>().swap(unit.procedure.edges);
  std::vector<uint8_t>().swap(unit.insn_sizes);
}

}  // namespace tally::engine
