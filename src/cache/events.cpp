// See events.h.
#include "cache/events.h"

#include <algorithm>
#include <utility>

namespace tally::engine {

std::vector<WantedEvent> find_events(const cfg::Procedure& p, const cfg::CodeView& view) {
  std::vector<std::pair<uint32_t, EventKind>> wanted;
  bool at_entry = false;
  for (const cfg::Block& block : p.blocks) {
    if (block.end != isa::Flow::kReturn && block.end != isa::Flow::kIndirectJump) continue;
    bool loads = false;
    for (const isa::Insn& insn : p.insns_of(block)) {
      const auto bytes = view.code_at(p.range.begin + insn.offset).first(insn.size);
      if (insn.loads_stack_pointer) loads = true;
      if (insn.loads_stack_pointer && !isa::raises_as_ocaml(bytes)) at_entry = true;
      if (isa::restores_stack_from_frame(bytes)) loads = false;
    }
    if (!loads) continue;
    wanted.push_back({block.first_insn + block.insn_count - 1, EventKind::kCommit});
    wanted.push_back({block.first_insn, EventKind::kSnapshot});
  }
  if (at_entry && !wanted.empty()) {
    std::erase_if(wanted, [](const auto& one) { return one.second == EventKind::kSnapshot; });
    wanted.push_back({p.blocks[p.entry_block].first_insn, EventKind::kSnapshot});
  }
  std::sort(wanted.begin(), wanted.end());
  std::vector<WantedEvent> events;
  for (const auto& [insn, kind] : wanted) {
    // An entry block of one instruction needs no snapshot: there is nothing between.
    if (!events.empty() && events.back().insn == insn) continue;
    WantedEvent event{kind, insn, 0, 0};
    for (uint32_t b = 0; b < p.blocks.size(); ++b) {
      const cfg::Block& block = p.blocks[b];
      if (block.first_insn <= insn && insn < block.first_insn + block.insn_count) {
        event.block = b;
        event.insn_in_block = insn - block.first_insn;
      }
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace tally::engine
