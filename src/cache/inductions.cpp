// See inductions.h.
#include "cache/inductions.h"

#include <algorithm>
#include <array>
#include <bit>

#include "isa/constant_step.h"

namespace tally::engine {

using cfg::EdgeKind;
using Induction = translate::Plan::Induction;

namespace {

constexpr unsigned kRcx = 1, kRsp = 4;
// More than a processor does in a day; more is what is missing of what a register had.
constexpr unsigned kRunsBits = 46;

// Of a step of 2^n, runs are known modulo 2^(64 - n).
bool tells_runs(int64_t step) {
  return std::countr_zero(static_cast<uint64_t>(step)) <= 64 - static_cast<int>(kRunsBits);
}

bool is_plain(const cfg::Edge& edge) {
  return edge.kind == EdgeKind::kTaken || edge.kind == EdgeKind::kFallthrough ||
         edge.kind == EdgeKind::kJump;
}

// Whether every way in and out is a branch of the procedure's own.
bool is_closed(const cfg::Procedure& procedure, uint32_t block) {
  if (block == procedure.entry_block) return false;
  return std::ranges::all_of(procedure.edges, [&](const cfg::Edge& edge) {
    if (edge.from != block && edge.to != block) return true;
    return is_plain(edge) && edge.to != cfg::kExitBlock;
  });
}

// The one instruction that writes a register, for each register.
class Writers {
 public:
  // False: an instruction that is none.
  bool add(uint32_t insn, std::span<const uint8_t> bytes) {
    const std::optional<uint32_t> written = isa::registers_written(bytes);
    if (!written) return false;
    const std::optional<isa::ConstantStep> step = isa::constant_step(bytes);
    for (unsigned reg = 0; reg < kRegisters; ++reg) {
      if ((*written >> reg & 1) == 0) continue;
      times_[reg] += 1;
      const bool is_step = step && step->reg == reg && tells_runs(step->step);
      if (is_step) of_[reg] = Induction{0, insn, step->reg, step->step};
    }
    return true;
  }
  std::optional<Induction> found() const {
    for (unsigned reg = 0; reg < kRegisters; ++reg) {
      if (reg != kRcx && reg != kRsp && times_[reg] == 1 && of_[reg]) return of_[reg];
    }
    return std::nullopt;
  }

 private:
  static constexpr unsigned kRegisters = 16;
  std::array<uint32_t, kRegisters> times_{};
  std::array<std::optional<Induction>, kRegisters> of_{};
};

}  // namespace

std::optional<uint32_t> edge_to_itself(const cfg::Procedure& procedure, uint32_t block) {
  const cfg::Block& b = procedure.blocks[block];
  if (b.end != isa::Flow::kConditional || b.edge_count != 2) return std::nullopt;
  const cfg::Edge& taken = procedure.edges[b.first_edge];
  const cfg::Edge& other = procedure.edges[b.first_edge + 1];
  if (taken.to != block || other.to == block) return std::nullopt;
  return b.first_edge;
}

std::optional<Induction> induction_of(const cfg::Procedure& procedure,
                                      std::span<const uint8_t> insn_sizes,
                                      const cfg::CodeView& view, uint32_t block) {
  if (!edge_to_itself(procedure, block) || !is_closed(procedure, block)) return std::nullopt;
  const cfg::Block& b = procedure.blocks[block];
  std::span<const uint8_t> code = view.code_at(procedure.address_of(b));
  if (code.size() < b.size_bytes) return std::nullopt;
  Writers writers;
  for (uint32_t i = 0; i < b.insn_count; ++i) {
    const uint8_t size = insn_sizes[b.first_insn + i];
    if (!writers.add(i, code.first(size))) return std::nullopt;
    code = code.subspan(size);
  }
  std::optional<Induction> found = writers.found();
  if (found) found->block = block;
  return found;
}

std::function<bool(uint32_t block)> inductive_blocks(const cfg::Procedure& procedure,
                                                     std::span<const uint8_t> insn_sizes,
                                                     const cfg::CodeView& view) {
  return [&procedure, insn_sizes, &view](uint32_t block) {
    return induction_of(procedure, insn_sizes, view, block).has_value();
  };
}

void find_inductions(const cfg::Procedure& procedure, std::span<const uint8_t> insn_sizes,
                     const cfg::CodeView& view, translate::Plan& plan) {
  plan.inductions.clear();
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    if (plan.block_counter[b] == translate::kNoCounter) continue;
    const std::optional<uint32_t> again = edge_to_itself(procedure, b);
    if (!again || plan.edge_counter[*again] != translate::kNoCounter) continue;
    const auto neighbours = [&](const cfg::Edge& edge) {
      return (edge.from == b && plan.induction_of(edge.to) != nullptr) ||
             (edge.to == b && plan.induction_of(edge.from) != nullptr);
    };
    if (std::ranges::any_of(procedure.edges, neighbours)) continue;
    if (const auto induction = induction_of(procedure, insn_sizes, view, b)) {
      plan.inductions.push_back(*induction);
    }
  }
}

// held = step * runs modulo 2^64, where the step is 2^shift * odd.
std::optional<uint64_t> runs_of_loop(uint64_t held, int64_t step) {
  const auto shift = static_cast<unsigned>(std::countr_zero(static_cast<uint64_t>(step)));
  if ((held & ((uint64_t{1} << shift) - 1)) != 0) return std::nullopt;
  const auto odd = static_cast<uint64_t>(step >> shift);
  uint64_t inverse = odd;  // right in its low three bits; each turn doubles their number
  for (int turn = 0; turn < 5; ++turn) inverse *= 2 - odd * inverse;
  const uint64_t runs = ((held >> shift) * inverse) & (~uint64_t{0} >> shift);
  if (runs >> kRunsBits != 0) return std::nullopt;
  return runs;
}

std::optional<uint64_t> runs_counted(const Translated& translated, size_t counter, uint64_t held) {
  if (!translated.is_induced(counter)) return held;
  const auto steps = translated.induced_steps().find(static_cast<uint32_t>(counter));
  return runs_of_loop(held, steps->second);
}

}  // namespace tally::engine
