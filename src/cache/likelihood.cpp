// See likelihood.h.
#include "cache/likelihood.h"

namespace tally::engine {
namespace {

using isa::Flow;
using isa::Question;

constexpr double kRare = 0.1;
constexpr double kUnlikely = 0.5;
constexpr double kElsewhere = 0.25;

// A conditional branch's condition is one of eight, taken as it is or inverted (lowest bit).
enum Condition : uint8_t { kOverflow, kCarry, kZero, kNotAbove, kSign, kParity };

// What the block's last branch looks at.
Question question_of(const cfg::Procedure& procedure, const cfg::Block& block,
                     std::span<const uint8_t> bytes) {
  const std::span<const isa::Insn> insns = procedure.insns_of(block);
  for (size_t i = insns.size() - 1; i-- > 0;) {
    const isa::Insn& insn = insns[i];
    if (insn.flags_written == 0) continue;
    if (insn.offset + size_t{insn.size} > bytes.size()) break;
    return isa::question_of(bytes.subspan(insn.offset, insn.size));
  }
  return Question::kOther;
}

// That the condition holds, against that it does not.
double odds_of(const cfg::Procedure& procedure, const cfg::Block& block,
               std::span<const uint8_t> bytes) {
  const isa::Insn& branch = procedure.insns_of(block).back();
  const auto odds = [&]() -> double {
    switch (branch.condition / 2) {
      case kOverflow:
      case kParity:
        return kRare;
      case kSign:
        return kUnlikely;
      case kNotAbove:
        return 1 / kUnlikely;
      case kZero: {
        const Question question = question_of(procedure, block, bytes);
        if (question == Question::kNullPointer) return kUnlikely;
        return question == Question::kBits ? 1 / kUnlikely : 1;
      }
      default:
        return 1;
    }
  }();
  return branch.condition % 2 == 0 ? odds : 1 / odds;
}

}  // namespace

void set_likelihoods(const cfg::Procedure& procedure, const cfg::CodeView& view,
                     placement::Graph& graph) {
  if (procedure.insns.empty()) return;
  const std::span<const uint8_t> bytes = view.code_at(procedure.range.begin);
  graph.calls.assign(graph.node_count, false);
  for (size_t b = 0; b < procedure.blocks.size(); ++b) {
    const cfg::Block& block = procedure.blocks[b];
    graph.calls[b] = block.end == Flow::kCall || block.end == Flow::kIndirectCall;
    if (block.end != Flow::kConditional || block.edge_count != 2) continue;
    // The edge of the branch taken comes first (cfg/discover.cpp).
    graph.edges[block.first_edge].odds = odds_of(procedure, block, bytes);
    for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
      if (procedure.edges[e].kind == cfg::EdgeKind::kLeave) graph.edges[e].odds *= kElsewhere;
    }
  }
}

}  // namespace tally::engine
