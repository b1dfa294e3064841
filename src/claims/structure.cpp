// What the program's bytes say about a profile: is it code, does a block end where it claims to,
// can an edge be.
//
// Only bytes decide here, no count but zero: a claim of no executions about bytes that are no code
// is harmless and left alone.
#include <algorithm>

#include "claims/equations.h"

namespace tally::claims {
namespace {

const char* words(Bytes bytes) {
  switch (bytes) {
    case Bytes::kOutside:
      return "lies in no segment of the program";
    case Bytes::kData:
      return "is data: its segment is not executable";
    case Bytes::kPadding:
      return "is padding: no section of code holds it";
    default:
      return "is not an instruction";
  }
}

class Checker {
 public:
  explicit Checker(Inspection& inspection)
      : inspection_(inspection), claims_(inspection.claims), code_(inspection.code) {}

  void run() {
    for (const EdgeClaim& edge : claims_.edges) {
      if (edge.count > 0) entered_.insert(edge.to);
    }
    for (const BlockClaim& block : claims_.blocks) {
      if (block.arrived) arrived_.insert(block.begin);
    }
    for (const BlockClaim& block : claims_.blocks) check_block(block);
    for (const ProcedureClaim& procedure : claims_.procedures) {
      if (procedure.count > 0 && procedure.entry.module != Place::kNowhere) {
        check_bytes(procedure.entry, procedure.count, RecordKind::kProcedure, procedure.record);
      }
    }
    for (const InstructionClaim& claim : claims_.instructions) check_instruction(claim);
    for (const EdgeClaim& edge : claims_.edges) {
      if (edge.count > 0) check_edge(edge);
    }
    check_overlaps();
  }

 private:
  // False: not code, which is said once for each address.
  bool check_bytes(const Place& place, uint64_t count, RecordKind kind, Record record) {
    const Bytes bytes = code_.kind_of(place);
    if (bytes == Bytes::kUnknown) return false;
    if (bytes == Bytes::kCode) return true;
    // Data that the program made executable; what it had there then, its file does not tell.
    if (bytes == Bytes::kData && arrived_.contains(place)) return false;
    if (!said_.insert(place).second) return false;
    inspection_.find(
        {.kind = FaultKind::kNotCode,
         .place = place,
         .claimed = count,
         .implied = 0,
         .record = inspection_.record_of(kind, record),
         .message = fmt::format("{:#x} has a count, but {}", place.address.value(), words(bytes))});
    return false;
  }

  void check_block(const BlockClaim& block) {
    if (block.count == 0 && !block.unsure) return;
    if (!check_bytes(block.begin, block.count, RecordKind::kBlock, block.record)) return;
    if (block.size_bytes == 0) return;
    const LinkAddr end = block.begin.address + block.size_bytes;
    if (end < block.begin.address) return bad_block(block, "it ends before it begins");
    for (LinkAddr at = block.begin.address; at < end;) {
      const Place place{block.begin.module, at};
      if (at != block.begin.address &&
          !check_bytes(place, block.count, RecordKind::kBlock, block.record)) {
        return;
      }
      const isa::Insn insn = code_.insn_at(place);
      cover(place, insn.size);
      if (at + insn.size > end) {
        return bad_block(block, fmt::format("its end {:#x} lies inside the instruction at {:#x}",
                                            end.value(), at.value()));
      }
      if (insn.flow != isa::Flow::kNone && at + insn.size != end) {
        return bad_block(
            block, fmt::format("the instruction at {:#x} in its middle ends a block", at.value()));
      }
      at += insn.size;
    }
  }

  void bad_block(const BlockClaim& block, const std::string& why) {
    inspection_.find(
        {.kind = FaultKind::kBadBlock,
         .place = block.begin,
         .claimed = block.count,
         .implied = 0,
         .record = inspection_.record_of(RecordKind::kBlock, block.record),
         .message = fmt::format("the block of {} bytes cannot be: {}", block.size_bytes, why)});
  }

  void check_instruction(const InstructionClaim& claim) {
    if (claim.count == 0) return;
    if (!check_bytes(claim.at, claim.count, RecordKind::kInstruction, claim.record)) return;
    cover(claim.at, code_.insn_at(claim.at).size);
    counts_[claim.at] = {claim.count, RecordKind::kInstruction, claim.record};
  }

  void check_edge(const EdgeClaim& edge) {
    const bool from = check_bytes(edge.from, edge.count, RecordKind::kEdge, edge.record);
    const bool to = check_bytes(edge.to, edge.count, RecordKind::kEdge, edge.record);
    if (!from || !to) return;
    counts_.try_emplace(edge.to, Counted{edge.count, RecordKind::kEdge, edge.record});
    if (claims_.form == Form::kCallgrind && is_call(edge.role)) return;  // it skips PLT stubs
    Place last = edge.from;
    if (edge.origin == EdgeOrigin::kBlockBegin && !find_branch(edge, last)) return;
    check_branch(edge, last, code_.insn_at(last));
  }

  // The last instruction of the block that the edge leaves; false when nothing can be said.
  bool find_branch(const EdgeClaim& edge, Place& last) {
    const auto block = blocks().find(edge.from);
    const uint64_t size_bytes = block == blocks().end() ? 0 : block->second;
    for (int i = 0; i < kInstructionsMax; ++i) {
      const isa::Insn insn = code_.insn_at(last);
      if (insn.size == 0) return false;
      const Place next{last.module, last.address + insn.size};
      const bool at_end = size_bytes != 0 && next.address >= edge.from.address + size_bytes;
      if (insn.flow != isa::Flow::kNone || at_end || next == edge.to) return true;
      if (size_bytes == 0 && entered_.contains(next)) return true;
      last = next;
    }
    return false;
  }

  const PlaceMap<uint64_t>& blocks() {
    if (sizes_.empty()) {
      for (const BlockClaim& block : claims_.blocks) {
        uint64_t& size_bytes = sizes_[block.begin];
        // Of blocks that begin alike the longest: what ends earlier goes on by a fallthrough.
        size_bytes = std::max(size_bytes, block.size_bytes);
      }
    }
    return sizes_;
  }

  void check_branch(const EdgeClaim& edge, const Place& last, const isa::Insn& insn) {
    const LinkAddr next = last.address + insn.size;
    const LinkAddr to = edge.to.address;
    const bool here = edge.to.module == last.module;
    switch (insn.flow) {
      case isa::Flow::kNone:
      case isa::Flow::kSystemCall:
        if (here && to == next) return;
        if (insn.repeated && here && to == last.address) return;
        return fault(FaultKind::kNotABranch, edge, last, "is no branch");
      case isa::Flow::kReturn:
        // Returns have no edges in any form but as what they are: BOLT's records of branches.
        if (edge.origin == EdgeOrigin::kBranchInstruction) return;
        return fault(FaultKind::kNotABranch, edge, last, "is a return, which has no edges");
      case isa::Flow::kJump:
        if (here && to.value() == insn.target) return;
        return wrong_target(edge, last, insn, false);
      case isa::Flow::kConditional:
      case isa::Flow::kCountedJump:
        if (here && (to.value() == insn.target || to == next)) return;
        return wrong_target(edge, last, insn, true);
      case isa::Flow::kCall:
        if (here && (to.value() == insn.target || to == next)) return;
        return wrong_target(edge, last, insn, true);
      default:
        return;
    }
  }

  void wrong_target(const EdgeClaim& edge, const Place& last, const isa::Insn& insn, bool goes_on) {
    const std::string next =
        goes_on ? fmt::format(" or {:#x}", last.address.value() + insn.size) : std::string();
    fault(FaultKind::kWrongTarget, edge, last, fmt::format("leads to {:#x}{}", insn.target, next));
  }

  void fault(FaultKind kind, const EdgeClaim& edge, const Place& last, const std::string& why) {
    inspection_.find({.kind = kind,
                      .place = edge.from,
                      .claimed = edge.count,
                      .implied = 0,
                      .record = inspection_.record_of(RecordKind::kEdge, edge.record),
                      .message = fmt::format("no edge leads to {}: the instruction at {:#x} {}",
                                             code_.name_of(edge.to), last.address.value(), why)});
  }

  // Code that was decoded, by where its instructions begin.
  void cover(const Place& place, uint8_t size_bytes) { covered_[place] = size_bytes; }

  // A count inside of an instruction that was executed as well.  Code may overlap, when a branch
  // leads into the middle; a place where nothing leads was disassembled wrongly.
  void check_overlaps() {
    for (const auto& [place, counted] : counts_) {
      if (branch_leads_to(place)) continue;
      for (uint64_t back = 1; back < kInstructionMax && back <= place.address.value(); ++back) {
        const auto around = covered_.find({place.module, place.address - back});
        if (around == covered_.end() || around->second <= back) continue;
        inspection_.find(
            {.kind = FaultKind::kInsideInstruction,
             .place = place,
             .claimed = counted.count,
             .implied = 0,
             .record = inspection_.record_of(counted.kind, counted.record),
             .message = fmt::format("{:#x} lies inside the instruction at {:#x}, and no branch "
                                    "leads there",
                                    place.address.value(), around->first.address.value())});
        break;
      }
    }
  }

  // Some edge to it starts at an instruction that may well lead there.
  bool branch_leads_to(const Place& place) {
    if (targets_.empty()) {
      for (const EdgeClaim& edge : claims_.edges) {
        if (edge.count == 0) continue;
        Place last = edge.from;
        if (edge.origin == EdgeOrigin::kBlockBegin && !find_branch(edge, last)) continue;
        const isa::Insn insn = code_.insn_at(last);
        const bool anywhere =
            insn.flow == isa::Flow::kIndirectJump || insn.flow == isa::Flow::kIndirectCall ||
            (insn.flow == isa::Flow::kReturn && edge.origin == EdgeOrigin::kBranchInstruction);
        const bool has_target = insn.flow != isa::Flow::kNone && !anywhere;
        if (anywhere || (has_target && insn.target == edge.to.address.value()) ||
            last.address + insn.size == edge.to.address) {
          targets_.insert(edge.to);
        }
      }
    }
    return targets_.contains(place);
  }

  static constexpr int kInstructionsMax = 100'000;  // of one block
  static constexpr uint64_t kInstructionMax = 15;   // bytes

  struct Counted {
    uint64_t count = 0;
    RecordKind kind = RecordKind::kEdge;
    Record record = 0;
  };

  Inspection& inspection_;
  const Claims& claims_;
  Code& code_;
  std::set<Place> said_;
  std::set<Place> arrived_;  // blocks of data that became code
  std::set<Place> entered_;
  std::set<Place> targets_;
  std::map<Place, Counted> counts_;
  PlaceMap<uint8_t> covered_;
  PlaceMap<uint64_t> sizes_;
};

}  // namespace

void check_structure(Inspection& inspection) {
  Checker(inspection).run();
}

}  // namespace tally::claims
