// Conservation of flow where the profile counts instructions and jumps (callgrind).
//
// What an instruction claims has to be what reaches it: the one in front of it, as far as that one
// goes on to the next, the jumps to it, and the calls of it.
//
//     count(b) = goes_on(a) + sum(jumps to b) + sum(calls to b)       a ends where b begins
//
//     goes_on: its count; for a conditional jump less the times it was taken; none for jumps and
//     returns; for a call at most its count, since calls need not come back
//
// Not compared: calls of procedure linkage stubs, at which callgrind counts the stub's instructions
// as well (--skip-plt=yes, its default); around `rep` instructions, which count once per
// repetition, and where the form sees neither jump nor call (signal handlers, landings of
// exceptions, what unknown objects call): there, more than flows in is no contradiction unless the
// address can only be reached from the one before.
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

class Checker {
 public:
  explicit Checker(Inspection& inspection) : inspection_(inspection), claims_(inspection.claims) {}

  void run() {
    for (const InstructionClaim& claim : claims_.instructions) {
      Node& node = inspection_.nodes[claim.at];
      node.count += claim.count;
      node.record = claim.record;
      node.record_kind = RecordKind::kInstruction;
      node.claimed = true;
      const isa::Insn insn = inspection_.code.insn_at(claim.at);
      node.size_bytes = insn.size;
    }
    for (size_t i = 0; i < claims_.edges.size(); ++i) {
      const EdgeClaim& edge = claims_.edges[i];
      inspection_.edges_to[edge.to].push_back(i);
      inspection_.edges_from[edge.from].push_back(i);
      Node& to = inspection_.nodes[edge.to];
      to.in += edge.count;
      if (is_call(edge.role)) to.has_calls = true;
      if (!is_call(edge.role)) inspection_.nodes[edge.from].out += edge.count;
    }
    std::vector<InstructionClaim> sorted = claims_.instructions;
    std::sort(sorted.begin(), sorted.end(),
              [](const InstructionClaim& a, const InstructionClaim& b) { return a.at < b.at; });
    for (size_t i = 0; i < sorted.size(); ++i) {
      check(i == 0 ? nullptr : &sorted[i - 1], sorted[i]);
    }
  }

 private:
  // From `before`, if that is the instruction in front; `most` of it goes on, `least` certainly.
  struct GoesOn {
    Wide least = 0;
    Wide most = 0;
    bool known = true;
  };
  GoesOn goes_on(const InstructionClaim* before, const InstructionClaim& claim) {
    if (before == nullptr || before->at.module != claim.at.module) return {};
    const isa::Insn insn = inspection_.code.insn_at(before->at);
    if (insn.size == 0 || before->at.address + insn.size != claim.at.address) return {};
    const Wide count = before->count;
    const Wide taken = inspection_.nodes[before->at].out;
    switch (insn.flow) {
      case isa::Flow::kNone:
        return {count, count, !insn.repeated};
      case isa::Flow::kConditional:
      case isa::Flow::kCountedJump:
        return {count - taken, count - taken, true};
      case isa::Flow::kJump:
      case isa::Flow::kIndirectJump:
      case isa::Flow::kReturn:
        return {0, 0, true};
      default:
        return {0, count, true};
    }
  }

  bool calls_stub(const Place& place, const isa::Insn& insn) const {
    const elf::Image* image = inspection_.code.image(place.module);
    const bool direct = insn.flow == isa::Flow::kCall || insn.flow == isa::Flow::kJump;
    return direct && image != nullptr && image->linkage_table_at(LinkAddr(insn.target)) != nullptr;
  }

  // Nothing but the instruction in front leads here: no jump, no call, no begin of anything.
  bool only_from_before(const InstructionClaim* before, const InstructionClaim& claim) {
    if (before == nullptr || inspection_.edges_to.contains(claim.at)) return false;
    const isa::Insn insn = inspection_.code.insn_at(before->at);
    return insn.size != 0 && insn.flow == isa::Flow::kNone &&
           before->at.module == claim.at.module &&
           before->at.address + insn.size == claim.at.address;
  }

  void check(const InstructionClaim* before, const InstructionClaim& claim) {
    const isa::Insn insn = inspection_.code.insn_at(claim.at);
    const GoesOn flow = goes_on(before, claim);
    if (insn.size == 0 || insn.repeated || !flow.known || calls_stub(claim.at, insn)) {
      ++inspection_.report.open;
      return;
    }
    ++inspection_.report.equations;
    const Wide in = inspection_.nodes[claim.at].in;
    if (claim.count < flow.least + in) {
      inspection_.compare(Rule::kIn, claim.at, claim.count, flow.least + in);
    } else if (claim.count > flow.most + in && only_from_before(before, claim)) {
      inspection_.compare(Rule::kIn, claim.at, claim.count, flow.most + in);
    }
  }

  Inspection& inspection_;
  const Claims& claims_;
};

}  // namespace

void check_instruction_flow(Inspection& inspection) {
  const Claims& claims = inspection.claims;
  if (claims.blocks.empty() && !claims.instructions.empty() && !claims.edges.empty()) {
    Checker(inspection).run();
  }
}

}  // namespace tally::claims
