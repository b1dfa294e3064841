// Text and Graphviz dumps of a procedure's graph.
#include <fmt/format.h>

#include <iterator>

#include "cfg/procedure.h"

namespace tally::cfg {
namespace {

std::string edge_text(const Procedure& procedure, const Edge& edge) {
  if (edge.kind == EdgeKind::kReturn || edge.kind == EdgeKind::kNoReturn)
    return to_string(edge.kind);
  if (edge.kind == EdgeKind::kLeave) return fmt::format("leave to {:#x}", edge.target.value());
  return fmt::format("{} {:#x}", to_string(edge.kind),
                     procedure.address_of(procedure.blocks[edge.to]).value());
}

}  // namespace

std::string dump_text(const Procedure& procedure, const CodeView& view, const std::string& name) {
  std::string out =
      fmt::format("procedure {} entry {:#x} range {:#x}-{:#x} blocks {} edges {}\n", name,
                  procedure.entry.value(), procedure.range.begin.value(),
                  procedure.range.end.value(), procedure.blocks.size(), procedure.edges.size());
  for (const Block& block : procedure.blocks) {
    fmt::format_to(std::back_inserter(out), "block {:#x} size {} instructions {}{}\n",
                   procedure.address_of(block).value(), block.size_bytes, block.insn_count,
                   block.from_jump_table ? " (jump table)" : "");
    for (const isa::Insn& insn : procedure.insns_of(block)) {
      const LinkAddr at = procedure.range.begin + insn.offset;
      fmt::format_to(std::back_inserter(out), "  {:#x}  {}\n", at.value(),
                     isa::format(view.code_at(at), at.value()));
    }
    for (const Edge& edge : procedure.edges_of(block)) {
      fmt::format_to(std::back_inserter(out), "    -> {}\n", edge_text(procedure, edge));
    }
  }
  return out;
}

std::string dump_dot(const Procedure& procedure, const CodeView& view, const std::string& name) {
  std::string out =
      fmt::format("digraph \"{}\" {{\n  node [shape=box, fontname=monospace];\n", name);
  for (const Block& block : procedure.blocks) {
    std::string label;
    for (const isa::Insn& insn : procedure.insns_of(block)) {
      const LinkAddr at = procedure.range.begin + insn.offset;
      label += fmt::format("{:#x}  {}\\l", at.value(), isa::format(view.code_at(at), at.value()));
    }
    fmt::format_to(std::back_inserter(out), "  b{:x} [label=\"{}\"];\n", block.offset, label);
    for (const Edge& edge : procedure.edges_of(block)) {
      if (edge.to == kExitBlock) {
        fmt::format_to(std::back_inserter(out), "  b{:x} -> exit [label=\"{}\"];\n", block.offset,
                       edge_text(procedure, edge));
      } else {
        fmt::format_to(std::back_inserter(out), "  b{:x} -> b{:x} [label=\"{}\"];\n", block.offset,
                       procedure.blocks[edge.to].offset, to_string(edge.kind));
      }
    }
  }
  return out + "}\n";
}

}  // namespace tally::cfg
