// Comparing what was claimed with what was counted.  See checkers.h.
#include "verify/checkers.h"

#include <fmt/format.h>

#include <algorithm>

#include "claims/counts.h"
#include "claims/read.h"

namespace tally::verify {
namespace {

using claims::RecordKind;

void count_up(std::vector<uint64_t>& counts, BlockId id) {
  if (id >= counts.size()) counts.resize(std::max<size_t>(id + 1, counts.size() * 2), 0);
  ++counts[id];
}

Finding finding_at(const Code& code, BlockId id, FindingKind kind) {
  const CodeBlock& b = code.block(id);
  const CodeModule& module = code.module(b.module);
  Finding f;
  f.kind = kind;
  f.where = code.describe(id);
  f.module = module.path;
  f.address = b.begin;
  if (module.image) {
    if (const elf::Symbol* symbol = module.image->symbol_at(b.begin)) f.name = symbol->name;
    f.procedure = procedure_around(*module.image, b.begin);
  }
  return f;
}

void set_target(Finding& f, const Code& code, BlockId to) {
  f.to = code.describe(to);
  f.to_module = code.module(code.block(to).module).path;
  f.to_address = code.block(to).begin;
}

struct ClaimedEdge {
  uint64_t count = 0;
  claims::Record record = 0;
  EdgeRole role = EdgeRole::kUnknown;
};

}  // namespace

// ---- Edges -----------------------------------------------------------------------------------

void EdgeChecker::block_entered(BlockId block) {
  count_up(entered_, block);
}

void EdgeChecker::block_split(BlockId upper, BlockId lower) {
  const uint64_t through = upper < entered_.size() ? entered_[upper] : 0;
  EdgeCounts moved;
  for (auto it = taken_.begin(); it != taken_.end();) {
    if (it->first.from != upper) {
      ++it;
      continue;
    }
    moved[{lower, it->first.to, it->first.role}] += it->second;
    it = taken_.erase(it);
  }
  for (const auto& [key, count] : moved) taken_[key] += count;
  if (through == 0) return;
  taken_[{upper, lower, EdgeRole::kFallthrough}] += through;
  if (entered_.size() <= lower) entered_.resize(lower + 1, 0);
  entered_[lower] += through;
}

void EdgeChecker::judge(const claims::Claims& claims, const ClaimedBlocks& blocks, bool complete,
                        Judgement& judgement, Coverage* coverage) const {
  const bool by_role = claims.form == claims::Form::kTally;
  // Two edges between the same blocks differ by whether control just went on, or came back.  What
  // is a call and what a jump is a matter of taste (`call 1f; 1: pop rax`).
  const auto role_for = [&](EdgeRole role) {
    if (!by_role) return EdgeRole::kUnknown;
    return role == EdgeRole::kCall ? EdgeRole::kBranch : role;
  };
  std::unordered_map<EdgeKey, ClaimedEdge, EdgeKeyHash> claimed;
  for (const auto& [ends, count] : blocks.inner()) {
    const EdgeKey key{static_cast<BlockId>(ends >> 32), static_cast<BlockId>(ends),
                      role_for(EdgeRole::kFallthrough)};
    uint64_t& sum = claimed[key].count;
    sum = claims::joined(sum, count);
  }
  for (const claims::EdgeClaim& e : claims.edges) {
    ++judgement.edges.claims;
    const BlockId from = blocks.source(e);
    const BlockId to = blocks.at(e.to);
    if (from == kNoBlock || to == kNoBlock) {
      if (e.count == 0) continue;
      Finding f;
      f.kind = FindingKind::kEdgeCount;
      f.module = code_.module(blocks.module_of(e.from)).path;
      f.where = code_.describe(code_.module(blocks.module_of(e.from)), e.from.address);
      f.to = code_.describe(code_.module(blocks.module_of(e.to)), e.to.address);
      f.address = e.from.address;
      f.claimed = e.count;
      f.role = e.role;
      f.record = claims::describe_record(claims.form, RecordKind::kEdge, e.record);
      if (!complete || coverage != nullptr) continue;
      ++judgement.edges.wrong;
      judgement.findings.push_back(std::move(f));
      continue;
    }
    ClaimedEdge& c = claimed[{from, to, role_for(e.role)}];
    c.count = claims::joined(c.count, e.count);
    c.role = e.role;
    if (c.record == 0) c.record = e.record;
  }
  EdgeCounts taken;
  std::unordered_map<EdgeKey, EdgeRole, EdgeKeyHash> roles;
  bool covered[8] = {};
  for (const auto& [key, count] : taken_) {
    const EdgeKey k{key.from, key.to, role_for(key.role)};
    taken[k] += count;
    roles.try_emplace(k, key.role);
    if (claimed.contains(k)) covered[static_cast<size_t>(key.role)] = true;
  }
  for (const auto& [key, c] : claimed) {
    const auto it = taken.find(key);
    const uint64_t counted = it == taken.end() ? 0 : it->second;
    ++judgement.edges.judged;
    judgement.edges.executions += counted;
    // Calls that came back are seen where they return from, which may not be watched.
    const bool whole = complete && (coverage == nullptr || (coverage->watched.contains(key.from) &&
                                                            c.role != EdgeRole::kCallReturn));
    if (coverage != nullptr) {
      if (whole) ++coverage->edges_complete;
      coverage->executions_claimed += c.count;
    }
    if (!differs(c.count, counted, whole)) continue;
    Finding f = finding_at(code_, key.from, FindingKind::kEdgeCount);
    set_target(f, code_, key.to);
    f.role = c.role;
    f.claimed = c.count;
    f.counted = counted;
    f.record = claims::describe_record(claims.form, RecordKind::kEdge, c.record);
    ++judgement.edges.wrong;
    judgement.findings.push_back(std::move(f));
  }
  for (const auto& [key, count] : taken) {
    if (claimed.contains(key)) continue;
    const EdgeRole role = roles[key];
    const bool between = blocks.known_module(code_.block(key.from).module) &&
                         blocks.known_module(code_.block(key.to).module);
    if (!between || (!by_role && !covered[static_cast<size_t>(role)])) continue;
    if (blocks.unsure(key.from) || blocks.unsure(key.to)) continue;
    Finding f = finding_at(code_, key.from, FindingKind::kMissingEdge);
    set_target(f, code_, key.to);
    f.role = role;
    f.counted = count;
    f.reason = Reason::kStructure;
    ++judgement.edges.wrong;
    judgement.findings.push_back(std::move(f));
  }
}

// ---- Blocks ----------------------------------------------------------------------------------

void BlockChecker::block_entered(BlockId block) {
  count_up(entered_, block);
}

void BlockChecker::block_split(BlockId upper, BlockId lower) {
  if (entered_.size() <= lower) entered_.resize(lower + 1, 0);
  entered_[lower] += entered(upper);
}

void BlockChecker::judge(const claims::Claims& claims, const ClaimedBlocks& blocks, bool complete,
                         Judgement& judgement, const Coverage* coverage) const {
  judgement.blocks.claims = claims.blocks.size();
  if (claims.blocks.empty() && claims.form != claims::Form::kPlain) return;
  for (const auto& [id, block_count] : blocks.counts()) {
    if (blocks.unsure(id)) continue;
    const bool first = blocks.by_first_instruction();
    const uint64_t claimed = claims::corrected(block_count, blocks.correction(id));
    const uint64_t counted = first ? executed(id) : entered(id);
    ++judgement.blocks.judged;
    judgement.blocks.executions += counted;
    const bool whole = complete && (coverage == nullptr || coverage->watched.contains(id));
    if (!differs(claimed, counted, whole)) continue;
    const CodeBlock& b = code_.block(id);
    const BlockId around = code_.holding(code_.module(b.module), b.begin);
    const bool inside = counted == 0 && around != kNoBlock && around != id;
    Finding f = finding_at(code_, id, inside ? FindingKind::kInside : FindingKind::kBlockCount);
    if (inside) f.reason = Reason::kStructure;
    f.claimed = claimed;
    f.counted = counted;
    f.record = claims::describe_record(claims.form, RecordKind::kBlock, blocks.record(id));
    ++judgement.blocks.wrong;
    judgement.findings.push_back(std::move(f));
  }
  if (claims.blocks.empty()) return;
  for (BlockId id = 0; id < entered_.size(); ++id) {
    if (entered_[id] == 0 || blocks.claimed(id)) continue;
    if (!blocks.known_module(code_.block(id).module)) continue;
    Finding f = finding_at(code_, id, FindingKind::kMissingBlock);
    f.counted = entered_[id];
    f.reason = Reason::kStructure;
    ++judgement.blocks.wrong;
    judgement.findings.push_back(std::move(f));
  }
}

uint64_t BlockChecker::executed(BlockId block) const {
  const auto cut = cut_.find({block, code_.block(block).begin});
  return entered(block) - (cut == cut_.end() ? 0 : cut->second);
}

// ---- Procedures ------------------------------------------------------------------------------

std::string name_in_source(const Finding& finding) {
  if (finding.kind == FindingKind::kLineCount) return finding.where;
  return finding.kind == FindingKind::kProcedureCount ? finding.name : std::string();
}

LinkAddr procedure_around(const elf::Image& image, LinkAddr address) {
  // One record of .eh_frame describes the whole linkage table; each stub is for itself.
  if (image.linkage_table_at(address) != nullptr) return address;
  if (const elf::Symbol* symbol = image.symbol_at(address)) return symbol->range.begin;
  const auto range = image.unwind_range_at(address);
  return range ? range->begin : LinkAddr();
}

void InterruptionChecker::block_split(BlockId upper, BlockId lower) {
  if (const uint64_t count = entered(upper); count != 0) entered_[lower] = count;
}

uint64_t InterruptionChecker::entered(BlockId block) const {
  const auto it = entered_.find(block);
  return it == entered_.end() ? 0 : it->second;
}

uint64_t ProcedureChecker::called(BlockId entry) const {
  const auto it = called_.find(entry);
  return it == called_.end() ? 0 : it->second;
}

void ProcedureChecker::judge(const claims::Claims& claims, const ClaimedBlocks& blocks,
                             const EdgeChecker& edges, const BlockChecker& arrivals, bool complete,
                             Judgement& judgement) const {
  // Several procedures may begin at one address (generations of code): they count together.
  std::map<BlockId, ClaimedEdge> claimed;
  for (const claims::ProcedureClaim& p : claims.procedures) {
    ++judgement.procedures.claims;
    const BlockId entry = blocks.at(p.entry);
    if (p.unsure || entry == kNoBlock) continue;
    // Code made at run time: which generation's procedure was entered does not show from outside.
    if (code_.module(blocks.module_of(p.entry)).path == kGenerated) continue;
    const auto [it, fresh] = claimed.try_emplace(entry);
    ClaimedEdge& c = it->second;
    const int64_t correction = fresh ? blocks.correction(entry) : 0;
    c.count = claims::joined(c.count, claims::corrected(p.count, correction));
    if (c.record == 0) c.record = p.record;
  }
  std::unordered_map<BlockId, uint64_t> from_within;
  for (const auto& [key, count] : edges.taken()) {
    if (key.role == EdgeRole::kCall || !claimed.contains(key.to)) continue;
    const uint32_t own = blocks.procedure(key.to);
    if (own != claims::BlockClaim::kNoProcedure && blocks.procedure(key.from) == own) {
      from_within[key.to] += count;
    }
  }
  for (const auto& [entry, c] : claimed) {
    const bool first = blocks.by_first_instruction();
    const uint64_t arrived = first ? arrivals.executed(entry) : arrivals.entered(entry);
    const uint64_t counted = arrived - from_within[entry];
    ++judgement.procedures.judged;
    judgement.procedures.executions += counted;
    if (!differs(c.count, counted, complete)) continue;
    Finding f = finding_at(code_, entry, FindingKind::kProcedureCount);
    f.claimed = c.count;
    f.counted = counted;
    f.record = claims::describe_record(claims.form, RecordKind::kProcedure, c.record);
    ++judgement.procedures.wrong;
    judgement.findings.push_back(std::move(f));
  }
  for (const auto& [entry, count] : called_) judgement.calls.executions += count;
}

// ---- Words -----------------------------------------------------------------------------------

const char* to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::kEdgeCount:
      return "edge count";
    case FindingKind::kMissingEdge:
      return "missing edge";
    case FindingKind::kBlockCount:
      return "block count";
    case FindingKind::kMissingBlock:
      return "missing block";
    case FindingKind::kInside:
      return "inside an instruction";
    case FindingKind::kProcedureCount:
      return "procedure count";
    case FindingKind::kCallCount:
      return "call count";
    case FindingKind::kInstructionCount:
      return "instruction count";
    case FindingKind::kLineCount:
      return "line count";
    case FindingKind::kShare:
      return "share";
    case FindingKind::kContradiction:
      return "contradiction";
  }
  return "?";
}

const char* to_string(Reason reason) {
  switch (reason) {
    case Reason::kWrong:
      return "wrong";
    case Reason::kNondeterministic:
      return "nondeterministic";
    case Reason::kEnvironment:
      return "environment";
    case Reason::kOwnOutput:
      return "profiler's own I/O";
    case Reason::kStructure:
      return "structure";
    case Reason::kScheduling:
      return "scheduling";
    case Reason::kUnexplained:
      return "unexplained";
  }
  return "?";
}

const char* to_string(claims::EdgeRole role) {
  switch (role) {
    case EdgeRole::kBranch:
      return "branch";
    case EdgeRole::kFallthrough:
      return "fallthrough";
    case EdgeRole::kCall:
      return "call";
    case EdgeRole::kCallReturn:
      return "call_return";
    case EdgeRole::kSystemCall:
      return "system_call";
    case EdgeRole::kUnknown:
      break;
  }
  return "edge";
}

}  // namespace tally::verify
