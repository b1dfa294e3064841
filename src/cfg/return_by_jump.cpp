// Returns by a jump.  See procedure.h.
#include "cfg/procedure.h"
#include "isa/return_slot.h"

namespace tally::cfg {

void find_return_by_jump(std::span<isa::Insn> insns, LinkAddr base, const CodeView& view) {
  isa::Insn& jump = insns.back();
  if (jump.flow != isa::Flow::kIndirectJump) return;
  std::vector<std::span<const uint8_t>> bytes;
  bytes.reserve(insns.size());
  for (const isa::Insn& insn : insns) {
    bytes.push_back(view.code_at(base + insn.offset).first(insn.size));
  }
  if (!isa::returns_by_jump(bytes)) return;
  jump.flow = isa::Flow::kReturn;
  jump.by_jump = true;
}

}  // namespace tally::cfg
