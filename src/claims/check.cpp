// The order of the static checks, and what they share; see check.h.
#include "claims/check.h"

#include <algorithm>
#include <array>

#include "claims/counts.h"
#include "claims/equations.h"

namespace tally::claims {
namespace {

constexpr std::array<const char*, kFaultKinds> kNames = {
    "impossible",   "overflow-32", "missing-block", "missing-edge",       "entries",
    "off-by-one",   "flow",        "not-code",      "inside-instruction", "not-a-branch",
    "wrong-target", "bad-block",   "total"};

template <class List, class PlaceOf>
void check_list(Inspection& inspection, const List& list, RecordKind kind, PlaceOf place_of) {
  for (const auto& claim : list) {
    if (!is_impossible(claim.count)) continue;
    inspection.find(
        {.kind = FaultKind::kImpossible,
         .place = place_of(claim),
         .claimed = claim.count,
         .implied = static_cast<int64_t>(claim.count),
         .record = inspection.record_of(kind, claim.record),
         .message = fmt::format("the count is {} as a signed number: it was negative or "
                                "has overflowed",
                                static_cast<int64_t>(claim.count))});
  }
}

}  // namespace

const char* to_string(FaultKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

bool is_call(EdgeRole role) {
  return role == EdgeRole::kCall;
}

std::string to_text(Wide value) {
  return fmt::format("{}", value);
}

void Inspection::compare(Rule rule, const Place& place, Wide count, Wide flow) {
  if (count != flow) imbalances.push_back({rule, place, static_cast<uint64_t>(count), flow});
}

void Inspection::find(Finding finding) {
  ++report.findings_total;
  ++report.by_kind[static_cast<size_t>(finding.kind)];
  if (finding.where.empty() && finding.place.module != Place::kNowhere) {
    finding.where = code.name_of(finding.place);
  }
  if (report.findings.size() < CheckReport::kListed) {
    report.findings.push_back(std::move(finding));
  }
}

const Ending& Inspection::ending_of(const Place& place) {
  const auto [slot, is_new] = endings.try_emplace(place);
  Ending& ending = slot->second;
  const auto node = nodes.find(place);
  if (!is_new || node == nodes.end() || node->second.size_bytes == 0) return ending;
  const LinkAddr end = place.address + node->second.size_bytes;
  for (LinkAddr at = place.address; at < end;) {
    const isa::Insn insn = code.insn_at({place.module, at});
    if (insn.size == 0) return ending;
    if (at + insn.size >= end) {
      if (at + insn.size == end) ending = {insn, at, end, false, insn.repeated};
      return ending;
    }
    at += insn.size;
  }
  return ending;
}

void check_numbers(Inspection& inspection) {
  const Claims& claims = inspection.claims;
  check_list(inspection, claims.blocks, RecordKind::kBlock,
             [](const BlockClaim& claim) { return claim.begin; });
  check_list(inspection, claims.edges, RecordKind::kEdge,
             [](const EdgeClaim& claim) { return claim.from; });
  check_list(inspection, claims.instructions, RecordKind::kInstruction,
             [](const InstructionClaim& claim) { return claim.at; });
  check_list(inspection, claims.procedures, RecordKind::kProcedure,
             [](const ProcedureClaim& claim) { return claim.entry; });
  for (const LineClaim& line : claims.lines) {
    if (!is_impossible(line.count)) continue;
    inspection.find({.kind = FaultKind::kImpossible,
                     .place = {Place::kNowhere, {}},
                     .where = fmt::format("{}:{} {}", line.file, line.line, line.function),
                     .claimed = line.count,
                     .implied = static_cast<int64_t>(line.count),
                     .record = inspection.record_of(RecordKind::kLine, line.record),
                     .message = fmt::format("the count is {} as a signed number: it was negative "
                                            "or has overflowed",
                                            static_cast<int64_t>(line.count))});
  }
  for (const SumClaim& sum : claims.sums) {
    ++inspection.report.equations;
    if (sum.at_most ? sum.sum <= sum.claimed : sum.sum == sum.claimed) continue;
    const Wide difference = static_cast<Wide>(sum.sum) - sum.claimed;
    const bool impossible = is_impossible(sum.sum) || is_impossible(sum.claimed);
    const bool wrapped = difference % (Wide{1} << 32) == 0;
    inspection.find(
        {.kind = impossible ? FaultKind::kImpossible
                 : wrapped  ? FaultKind::kOverflow32
                            : FaultKind::kTotal,
         .place = {Place::kNowhere, {}},
         .where = sum.place,
         .claimed = sum.claimed,
         .implied = sum.sum,
         .record = inspection.record_of(RecordKind::kProcedure, sum.record),
         .message = fmt::format("{}: {} stated, {} added up", sum.what, sum.claimed, sum.sum)});
  }
}

CheckReport check(const Claims& claims) {
  Inspection inspection(claims);
  check_numbers(inspection);
  check_structure(inspection);
  if (claims.nature == Nature::kCounts) {
    check_block_flow(inspection);
    check_edge_flow(inspection);
    check_instruction_flow(inspection);
    check_lines(inspection);
    explain(inspection);
  }
  measure_known(inspection);
  CheckReport& report = inspection.report;
  report.notes = inspection.code.notes();
  std::stable_sort(report.findings.begin(), report.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.place < b.place; });
  return std::move(report);
}

}  // namespace tally::claims
