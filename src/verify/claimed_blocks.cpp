// The profile's blocks among those of the code.  See checkers.h.
#include "claims/counts.h"
#include "verify/checkers.h"

namespace tally::verify {

ClaimedBlocks::ClaimedBlocks(Code& code, const claims::Claims& claims)
    : code_(code), claims_(claims) {
  for (const claims::Module& module : claims.modules) {
    modules_.push_back(code.module(module.path).id);
    if (known_.size() <= modules_.back()) known_.resize(modules_.back() + 1, false);
    known_[modules_.back()] = true;
  }
  for (const claims::BlockClaim& b : claims.blocks) {
    const BlockId id = code.expect(code.module(module_of(b.begin)), b.begin.address);
    counts_[id] = claims::joined(counts_[id], b.count);
    rows_.push_back({id, b.size_bytes, b.count});
    records_.try_emplace(id, b.record);
    procedures_.try_emplace(id, b.procedure);
    uint64_t& size = sizes_[id];
    size = std::max(size, b.size_bytes);
    if (b.unsure) unsure_[id] = true;
  }
  for (const claims::EdgeClaim& e : claims.edges) {
    code.expect(code.module(module_of(e.to)), e.to.address);
    if (e.origin == claims::EdgeOrigin::kBlockBegin) {
      code.expect(code.module(module_of(e.from)), e.from.address);
    }
  }
}

void ClaimedBlocks::correct(const std::vector<Correction>& corrections) {
  by_first_instruction_ = true;
  for (const Correction& c : corrections) {
    const BlockId id = code_.expect(code_.module(c.module), c.block);
    corrections_[id] += c.first_instruction;
    // What did not get to its end did not get to the lower parts of the block.
    through_[id] += c.last_instruction;
  }
}

int64_t ClaimedBlocks::correction(BlockId id) const {
  const auto it = corrections_.find(id);
  return it == corrections_.end() ? 0 : it->second;
}

// A block that other beginnings have cut counts for all of its parts.
void ClaimedBlocks::settle() {
  for (const auto& [first, size_bytes, entered] : rows_) {
    const LinkAddr end = code_.block(first).begin + size_bytes;
    const auto less = through_.find(first);
    const uint64_t count = claims::corrected(entered, less == through_.end() ? 0 : less->second);
    BlockId id = first;
    while (code_.block(id).how == BlockEnd::kFallthrough && code_.block(id).end < end) {
      const CodeBlock& part = code_.block(id);
      const BlockId next = code_.find(code_.module(part.module), part.end);
      if (next == kNoBlock) break;
      // Recorded even when nobody was claimed to have been there: the structure is known.
      uint64_t& inner = inner_[uint64_t{id} << 32 | next];
      inner = claims::joined(inner, count);
      counts_[next] = claims::joined(counts_[next], count);
      procedures_.try_emplace(next, procedures_[first]);
      records_.try_emplace(next, records_[first]);
      id = next;
    }
  }
}

bool ClaimedBlocks::unsure(BlockId id) const {
  return unsure_.contains(id);
}

BlockId ClaimedBlocks::at(const claims::Place& place) const {
  return code_.find(code_.module(module_of(place)), place.address);
}

BlockId ClaimedBlocks::source(const claims::EdgeClaim& edge) const {
  const CodeModule& module = code_.module(module_of(edge.from));
  if (edge.origin == claims::EdgeOrigin::kBranchInstruction) {
    return code_.holding(module, edge.from.address);
  }
  BlockId id = code_.find(module, edge.from.address);
  if (id == kNoBlock) return id;
  const auto size = sizes_.find(id);
  if (size == sizes_.end()) return id;
  const LinkAddr end = code_.block(id).begin + size->second;
  while (code_.block(id).how == BlockEnd::kFallthrough && code_.block(id).end < end) {
    const CodeBlock& part = code_.block(id);
    const BlockId next = code_.find(module, part.end);
    // The way from one part to the next is an edge of the upper part.
    const bool inner = edge.role == EdgeRole::kFallthrough && edge.to.module == edge.from.module &&
                       edge.to.address == part.end;
    if (next == kNoBlock || inner) break;
    id = next;
  }
  return id;
}

claims::Record ClaimedBlocks::record(BlockId id) const {
  const auto it = records_.find(id);
  return it == records_.end() ? 0 : it->second;
}

uint32_t ClaimedBlocks::procedure(BlockId id) const {
  const auto it = procedures_.find(id);
  return it == procedures_.end() ? claims::BlockClaim::kNoProcedure : it->second;
}

}  // namespace tally::verify
