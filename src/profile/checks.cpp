// See checks.h.
#include "profile/checks.h"

#include <fmt/format.h>

#include <algorithm>

namespace tally::profile {
namespace {

bool is_call(EdgeKind kind) {
  return kind == EdgeKind::kCall || kind == EdgeKind::kIndirectCall;
}

// A sum of counts of which some may be unknown.
struct Sum {
  __int128 value = 0;
  bool known = true;
  void add(const Edge& edge) {
    if (edge.source == CountSource::kUnknown) {
      known = false;
    } else {
      value += edge.count;
    }
  }
};

class Checker {
 public:
  Checker(const Profile& profile, const FlowIndex& index) : profile_(profile), index_(index) {}

  FlowReport run() {
    for (const Block& block : profile_.blocks) check_block(block);
    for (const Procedure& procedure : profile_.procedures) check_entries(procedure);
    return std::move(report_);
  }

 private:
  void check_block(const Block& block) {
    Sum in;
    Sum out;
    Sum calls;
    bool has_calls = false;
    for (uint32_t edge : index_.edges_to(block.id)) in.add(profile_.edges[edge]);
    for (uint32_t index : index_.edges_from(block.id)) {
      const Edge& edge = profile_.edges[index];
      if (is_call(edge.kind)) {
        calls.add(edge);
        has_calls = true;
      } else {
        out.add(edge);
      }
    }
    __int128 left = 0;
    // Entered behind the call already: a vfork child shares its parent's frames, and a process that
    // was attached to had made the call before.
    __int128 born = 0;
    uint64_t landed = 0;
    for (uint32_t term : index_.abnormal_at(block.id)) {
      in.value += profile_.abnormal[term].entered;
      left += profile_.abnormal[term].left;
      const AbnormalKind kind = profile_.abnormal[term].kind;
      if (kind == AbnormalKind::kThreadStart || kind == AbnormalKind::kAttach) {
        born += profile_.abnormal[term].entered;
      } else if (kind == AbnormalKind::kNonLocalJump) {
        landed += profile_.abnormal[term].entered;
      }
    }
    // ... or an exception's handler begins there.
    if (landed > 0) born += std::min(landed, runs_not_executed(block));
    out.value += left;
    const bool known =
        block.source != CountSource::kUnknown && in.known && out.known && calls.known;
    if (known) {
      ++report_.blocks_checked;
    } else {
      undetermined(block.id);
    }
    if (block.source == CountSource::kUnknown) return;
    compare(FlowRule::kIn, block, in.value, in.known);
    compare(FlowRule::kOut, block, out.value, out.known && !block.returns);
    if (!has_calls) return;
    const bool too_few =
        calls.known && calls.value < static_cast<__int128>(block.count) - left - born;
    if (too_few || calls.value > block.count) {
      fault(FlowRule::kCalls, block.id, calls.value, block.count);
    }
  }

  // An incomplete sum may fall short of the count, but never exceed it.
  void compare(FlowRule rule, const Block& block, __int128 flow, bool complete) {
    if (flow > block.count || (complete && flow < block.count)) {
      fault(rule, block.id, flow, block.count);
    }
  }

  void check_entries(const Procedure& procedure) {
    if (procedure.entries_source == CountSource::kUnknown) return;
    Sum entries;
    for (const uint32_t block : index_.entry_blocks(procedure.id)) {
      for (uint32_t index : index_.edges_to(block)) {
        const Edge& edge = profile_.edges[index];
        const bool outside = profile_.blocks[edge.from_block].procedure_id != procedure.id;
        if (outside || is_call(edge.kind)) entries.add(edge);
      }
      for (uint32_t term : index_.abnormal_at(block)) {
        entries.value += profile_.abnormal[term].entered;
      }
    }
    if (entries.known) ++report_.procedures_checked;
    if (entries.value > procedure.entries || (entries.known && entries.value < procedure.entries)) {
      fault(FlowRule::kEntries, procedure.id, entries.value, procedure.entries);
    }
  }

  void fault(FlowRule rule, uint32_t id, __int128 flow, uint64_t count) {
    ++report_.faults_total;
    if (report_.faults.size() >= FlowReport::kListed) return;
    report_.faults.push_back({rule, id, flow, count});
  }

  void undetermined(uint32_t block) {
    ++report_.undetermined_total;
    if (report_.undetermined.size() < FlowReport::kListed) report_.undetermined.push_back(block);
  }

  const Profile& profile_;
  const FlowIndex& index_;
  FlowReport report_;
};

// Sees in one pass over the edges that the equations hold, without an index of edges by block.
// Where a count is unknown, too large, or out of balance, it says no and leaves the judgement to
// the checker.
class QuickChecker {
 public:
  explicit QuickChecker(const Profile& profile)
      : profile_(profile),
        flows_(profile.blocks.size()),
        has_calls_(profile.blocks.size()),
        entries_(profile.procedures.size()) {}

  bool holds() {
    for (const Edge& edge : profile_.edges) add(edge);
    for (const Abnormal& term : profile_.abnormal) add(term);
    return sure_ && std::ranges::all_of(profile_.blocks, [&](const Block& b) { return fits(b); }) &&
           std::ranges::all_of(profile_.procedures, [&](const Procedure& p) {
             return p.entries_source != CountSource::kUnknown && p.entries == entries_[p.id];
           });
  }

 private:
  // No sum of so many counts of 2^40 and less overflows.
  static constexpr uint64_t kCountMax = uint64_t{1} << 40;
  static constexpr size_t kRowsMax = size_t{1} << 23;

  struct Flow {
    uint64_t in = 0;
    uint64_t out = 0;
    uint64_t calls = 0;
    uint64_t left = 0;
  };

  bool is_entry(const Block& block) const {
    return block.address == profile_.procedures[block.procedure_id].entry;
  }

  void add(const Edge& edge) {
    sure_ &= edge.source != CountSource::kUnknown && edge.count <= kCountMax;
    const Block& to = profile_.blocks[edge.to_block];
    Flow& from = flows_[edge.from_block];
    flows_[edge.to_block].in += edge.count;
    if (is_call(edge.kind)) {
      from.calls += edge.count;
      has_calls_[edge.from_block] = true;
    } else {
      from.out += edge.count;
      if (profile_.blocks[edge.from_block].procedure_id == to.procedure_id) return;
    }
    if (is_entry(to)) entries_[to.procedure_id] += edge.count;
  }

  void add(const Abnormal& term) {
    sure_ &= term.entered <= kCountMax && term.left <= kCountMax;
    const Block& block = profile_.blocks[term.block];
    flows_[term.block].in += term.entered;
    flows_[term.block].left += term.left;
    if (is_entry(block)) entries_[block.procedure_id] += term.entered;
  }

  bool fits(const Block& block) const {
    const Flow& flow = flows_[block.id];
    const uint64_t out = flow.out + flow.left;
    if (block.source == CountSource::kUnknown || flow.in != block.count) return false;
    if (out > block.count || (!block.returns && out < block.count)) return false;
    return !has_calls_[block.id] ||
           (flow.calls <= block.count && flow.calls + flow.left >= block.count);
  }

  const Profile& profile_;
  std::vector<Flow> flows_;        // by block
  std::vector<bool> has_calls_;    // by block
  std::vector<uint64_t> entries_;  // by procedure
  bool sure_ = profile_.edges.size() + profile_.abnormal.size() <= kRowsMax;
};

std::string_view words(FlowRule rule) {
  switch (rule) {
    case FlowRule::kIn:
      return "in-edges and abnormal entries give {}, its count is {}";
    case FlowRule::kOut:
      return "out-edges and abnormal exits give {}, its count is {}";
    case FlowRule::kCalls:
      return "it made {} calls, its count is {}";
    case FlowRule::kEntries:
      return "calls, jumps and abnormal entries give {}, its entries are {}";
  }
  return "{} of {}";
}

// The last part of a path: enough to tell modules apart in a message.
std::string_view base_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

uint64_t runs_not_executed(const Block& block) {
  uint64_t runs = 0;
  for (const PartialRun& run : block.partial) {
    const bool whole =
        run.first_instruction == 0 && run.last_instruction == block.instruction_sizes.size();
    if (whole && run.delta < 0) runs += static_cast<uint64_t>(-run.delta);
  }
  return runs;
}

FlowReport check_flow(const Profile& profile, const FlowIndex& index) {
  return Checker(profile, index).run();
}

FlowReport check_flow(const Profile& profile) {
  return check_flow(profile, FlowIndex(profile));
}

uint64_t count_flow_faults(const Profile& profile) {
  return QuickChecker(profile).holds() ? 0 : check_flow(profile).faults_total;
}

std::string describe(const Profile& profile, const FlowFault& fault) {
  const bool of_procedure = fault.rule == FlowRule::kEntries;
  const Procedure& procedure =
      profile.procedures[of_procedure ? fault.id : profile.blocks[fault.id].procedure_id];
  const LinkAddr address = of_procedure ? procedure.entry : profile.blocks[fault.id].address;
  return fmt::format("{} {}+{:#x}: {}", of_procedure ? "procedure" : "block",
                     base_name(profile.modules[procedure.module_id].path), address.value(),
                     fmt::format(fmt::runtime(words(fault.rule)), fault.flow, fault.count));
}

}  // namespace tally::profile
