// What of a known procedure is decoded again.  See found_procedures.h.
#include "cache/found_procedures.h"

namespace tally::engine {

namespace {

// Whether the graph leads where the instruction does that ends the block.
bool leads_as_it_says(const cfg::Procedure& p, const cfg::Block& block, const isa::Insn& last) {
  const bool leads = last.flow == isa::Flow::kJump || last.flow == isa::Flow::kConditional ||
                     last.flow == isa::Flow::kCountedJump;
  if (!leads) return true;
  const cfg::Edge& edge = p.edges[block.first_edge];
  return edge.target == LinkAddr(last.target);
}

}  // namespace

bool decode_block(const cfg::CodeView& view, std::span<const uint8_t> sizes,
                  const cfg::Block& block, cfg::Procedure& procedure) {
  const LinkAddr begin = procedure.address_of(block);
  const std::span<const uint8_t> bytes = view.code_at(begin);
  uint32_t offset = 0;
  for (uint32_t i = 0; i < block.insn_count; ++i) {
    if (offset > bytes.size()) return false;
    isa::Insn& insn = procedure.insns[block.first_insn + i];
    insn = isa::decode(bytes.subspan(offset), (begin + offset).value());
    const bool is_last = i + 1 == block.insn_count;
    if (insn.size == 0 || insn.size != sizes[block.first_insn + i]) return false;
    insn.offset = block.offset + offset;
    if (is_last) {
      const std::span<isa::Insn> insns(procedure.insns);
      cfg::find_return_by_jump(insns.subspan(block.first_insn, block.insn_count),
                               procedure.range.begin, view);
    }
    if (insn.flow != (is_last ? block.end : isa::Flow::kNone)) return false;
    offset += insn.size;
  }
  return leads_as_it_says(procedure, block,
                          procedure.insns[block.first_insn + block.insn_count - 1]);
}

bool decode_instructions(const cfg::CodeView& view, Wanted wanted, KnownProcedure& known) {
  cfg::Procedure& p = known.procedure;
  const translate::Plan& plan = known.plan;
  p.insns.assign(known.insn_sizes.size(), isa::Insn());
  const bool whole = wanted == Wanted::kAll || plan.order.empty();
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    const cfg::Block& block = p.blocks[whole ? i : plan.order[i]];
    if (whole || i < plan.in_body) {
      if (!decode_block(view, known.insn_sizes, block, p)) return false;
    } else if (block.end == isa::Flow::kCall) {
      const uint32_t last = block.first_insn + block.insn_count - 1;
      const LinkAddr at = p.end_of(block) - known.insn_sizes[last];
      p.insns[last] = isa::decode(view.code_at(at), at.value());
      if (p.insns[last].size != known.insn_sizes[last]) return false;
      if (p.insns[last].flow != isa::Flow::kCall) return false;
    }
  }
  return true;
}

}  // namespace tally::engine
