// See events.h.
#include "cache/events.h"

#include <algorithm>
#include <utility>

#include "isa/emulate.h"

namespace tally::engine {

namespace {

constexpr int kStackPointer = 4;

// Whether an instruction leaves the stack, and where it is, alone.
bool spares_stack(const isa::Operation& operation) {
  using isa::Op;
  const isa::Operand& to = operation.operands[0];
  const bool known = operation.op != Op::kUnknown && operation.op < Op::kPush;
  return known && (to.kind != isa::Operand::Kind::kRegister || to.number != kStackPointer);
}

// Whether a block without a branch at its end is followed by a return at once, beyond the
// procedure: glibc's description of setcontext ends in front of its last two instructions.
bool returns_beyond(const cfg::Procedure& p, const cfg::Block& block, const cfg::CodeView& view,
                    std::vector<LinkRange>& sources) {
  constexpr int kInsnsMax = 4;
  if (p.end_of(block) != p.range.end) return false;
  const isa::Insn& last = p.insns[block.first_insn + block.insn_count - 1];
  const auto operation_at = [&](LinkAddr at) {
    return isa::decode_operation(view.code_at(at), at.value());
  };
  if (!spares_stack(operation_at(p.range.begin + last.offset))) return false;
  LinkAddr at = p.range.end;
  for (int i = 0; i < kInsnsMax; ++i) {
    const isa::Operation operation = operation_at(at);
    const size_t looked_at = operation.size == 0 ? isa::kInsnBytesMax : operation.size;
    sources.push_back({at, at + std::min(looked_at, view.code_at(at).size())});
    if (operation.op == isa::Op::kReturn) return operation.pop_bytes == 0;
    if (!spares_stack(operation)) return false;
    at += operation.size;
  }
  return false;
}

}  // namespace

std::vector<WantedEvent> find_events(const cfg::Procedure& p, const cfg::CodeView& view,
                                     std::vector<LinkRange>& sources) {
  std::vector<std::pair<uint32_t, EventKind>> wanted;
  bool at_entry = false;
  for (const cfg::Block& block : p.blocks) {
    const bool goes_on = block.end == isa::Flow::kNone;
    if (!goes_on && block.end != isa::Flow::kReturn && block.end != isa::Flow::kIndirectJump) {
      continue;
    }
    bool loads = false;
    bool here = false;
    for (const isa::Insn& insn : p.insns_of(block)) {
      const auto bytes = view.code_at(p.range.begin + insn.offset).first(insn.size);
      if (insn.loads_stack_pointer) loads = true;
      if (insn.loads_stack_pointer && !isa::raises_as_ocaml(bytes)) here = true;
      if (isa::restores_stack_from_frame(bytes)) loads = false;
    }
    if (goes_on && loads) loads = returns_beyond(p, block, view, sources);
    at_entry |= here && (loads || !goes_on);
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
