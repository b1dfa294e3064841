// Recursive disassembly of one procedure.  See procedure.h for the idea.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "cfg/procedure.h"

namespace tally::cfg {

using isa::Flow;

const char* to_string(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kFallthrough:
      return "fallthrough";
    case EdgeKind::kTaken:
      return "taken";
    case EdgeKind::kJump:
      return "jump";
    case EdgeKind::kCallReturn:
      return "call_return";
    case EdgeKind::kSystemCall:
      return "system_call";
    case EdgeKind::kTableJump:
      return "table_jump";
    case EdgeKind::kReturn:
      return "return";
    case EdgeKind::kNoReturn:
      return "no_return";
    case EdgeKind::kLeave:
      return "leave";
  }
  return "?";
}

BlockIndex Procedure::block_at(LinkAddr address) const {
  if (!range.contains(address)) return kExitBlock;
  const auto offset = static_cast<uint32_t>(address - range.begin);
  auto it = std::lower_bound(blocks.begin(), blocks.end(), offset,
                             [](const Block& b, uint32_t o) { return b.offset < o; });
  if (it == blocks.end() || it->offset != offset) return kExitBlock;
  return static_cast<BlockIndex>(it - blocks.begin());
}

std::optional<uint32_t> Procedure::edge_of_kind(const Block& block, EdgeKind kind) const {
  for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
    if (edges[e].kind == kind) return e;
  }
  return std::nullopt;
}

std::optional<uint32_t> Procedure::insn_with_dead(uint8_t flags, const Block& block) const {
  CHECK(size_t{block.first_insn} + block.insn_count <= insns.size()) << "no instructions";
  const std::span<const isa::Insn> all = insns_of(block);
  uint8_t live = block.flags_live_out;
  std::optional<uint32_t> first;
  for (uint32_t i = block.insn_count; i-- > 0;) {
    live = static_cast<uint8_t>(all[i].flags_read | (live & ~all[i].flags_written));
    if ((live & flags) == 0) first = i;
  }
  return first;
}

const Discoverer::Found* Discoverer::found_at(LinkAddr address) const {
  const uint64_t offset = address.value() - base_.value();
  if (offset >= index_.size() || index_[offset] == 0) return nullptr;
  return &found_[index_[offset] - 1];
}

Discoverer::Discoverer(const CodeView& view) : view_(view) {
  if (!view.read_data) return;
  view_.read_data = [this, read = view.read_data](LinkAddr a, void* data, size_t size_bytes) {
    note_data(a, size_bytes);
    return read(a, data, size_bytes);
  };
}

// The entries of a table are read one by one.
void Discoverer::note_data(LinkAddr begin, size_t size_bytes) {
  if (!looked_at_.empty() && looked_at_.back().end == begin) {
    looked_at_.back().end += size_bytes;
  } else {
    looked_at_.push_back({begin, begin + size_bytes});
  }
}

std::vector<LinkRange> Discoverer::sources(const Procedure& procedure) const {
  std::vector<LinkRange> all = looked_at_;
  for (const Block& block : procedure.blocks) {
    all.push_back({procedure.address_of(block), procedure.end_of(block)});
  }
  std::ranges::sort(all, {}, &LinkRange::begin);
  std::vector<LinkRange> result;
  for (const LinkRange& range : all) {
    if (!result.empty() && range.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, range.end);
    } else {
      result.push_back(range);
    }
  }
  return result;
}

Procedure Discoverer::discover(const DiscoverRequest& request) {
  Procedure procedure;
  discover(request, procedure);
  return procedure;
}

void Discoverer::discover(const DiscoverRequest& request, Procedure& procedure) {
  procedure.blocks.edit_anew();
  procedure.insns.clear();
  procedure.edges.edit_anew();
  procedure.entry = request.entry;
  procedure.range = request.range;
  base_ = request.range.begin;
  index_.assign(request.range.size_bytes(), 0);
  bytes_ = view_.code_at(base_);
  found_.clear();
  leaders_.assign(index_.size() / kLeaderBits + 1, 0);
  worklist_.clear();
  tables_.clear();
  looked_at_.clear();
  add_leader(request, request.entry);
  for (LinkAddr extra : request.extra_entries) add_leader(request, extra);
  while (!worklist_.empty()) {
    const LinkAddr start = worklist_.back();
    worklist_.pop_back();
    scan(request, start);
  }
  build_blocks(procedure);
  build_edges(request, procedure);
  procedure.entry_block = procedure.block_at(request.entry);
  compute_flags(request, procedure);
}

// Notes that a block begins at `target` if that lies in the range and is nobody else's.
void Discoverer::add_leader(const DiscoverRequest& request, LinkAddr target) {
  if (!request.range.contains(target)) return;
  if (target != request.entry && request.known_elsewhere && request.known_elsewhere(target)) return;
  const auto offset = static_cast<uint32_t>(target - base_);
  mark_leader(offset);
  if (index_[offset] == 0) worklist_.push_back(target);
}

// Nothing has been written there yet, as far as one can tell.
bool Discoverer::is_blank(LinkAddr at) const {
  constexpr size_t kBlankBytes = 8;
  const auto offset = static_cast<size_t>(at - base_);
  if (offset + kBlankBytes > bytes_.size()) return false;
  const auto bytes = bytes_.subspan(offset, kBlankBytes);
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

// Decodes straight on from `start` until control surely leaves or known code is met.
void Discoverer::scan(const DiscoverRequest& request, LinkAddr start) {
  // Behind each store a block of unstable code is compared as a whole.
  constexpr uint64_t kUnstableBlockBytesMax = 128;
  const bool blank = request.replaceable && is_blank(start);
  // Compilers write code when it is needed: behind a call that does not come back, there may be
  // kilobytes of nothing yet, which would all decode as stores.
  if (blank && start != request.entry) return;
  LinkAddr at = start;
  for (bool first = true;; first = false) {
    if (!request.range.contains(at)) return;
    if (request.replaceable && !blank && is_blank(at)) return;
    if (request.unstable && static_cast<uint64_t>(at - start) >= kUnstableBlockBytesMax) {
      return add_leader(request, at);
    }
    if (!first && request.known_elsewhere && request.known_elsewhere(at)) return;
    uint32_t& slot = index_[static_cast<size_t>(at - base_)];
    if (slot != 0) {
      // Two straight runs meet here (possibly out of overlapping code): a block begins.
      mark_leader(static_cast<uint32_t>(at - base_));
      return;
    }
    const auto offset = static_cast<size_t>(at - base_);
    if (offset >= bytes_.size()) return;
    isa::Insn insn = isa::decode(bytes_.subspan(offset), at.value());
    if (insn.size == 0 || !request.range.contains(at + (insn.size - 1u))) {
      note_data(at, std::min(isa::kInsnBytesMax, bytes_.size() - offset));
      return;
    }
    insn.offset = static_cast<uint32_t>(offset);
    if (request.unstable && insn.flow == Flow::kNone &&
        isa::writes_memory(bytes_.subspan(offset, insn.size))) {
      insn.may_change_code = true;
      insn.flags_read = isa::flag::kAll;
    }
    found_.push_back(Found{insn});
    slot = static_cast<uint32_t>(found_.size());
    const LinkAddr next = at + insn.size;
    switch (insn.flow) {
      case Flow::kNone:
        at = next;
        continue;
      case Flow::kConditional:
      case Flow::kCountedJump:
        add_leader(request, LinkAddr(insn.target));
        add_leader(request, next);
        return;
      case Flow::kJump:
        add_leader(request, LinkAddr(insn.target));
        return;
      case Flow::kCall:
        // A call into this very procedure's middle is worth following: hand-written code does it.
        if (LinkAddr(insn.target) != request.entry) {
          add_leader(request, LinkAddr(insn.target));
        }
        if (request.never_returns && request.never_returns(LinkAddr(insn.target))) return;
        add_leader(request, next);
        return;
      case Flow::kIndirectCall:
      case Flow::kSystemCall:
        add_leader(request, next);
        return;
      case Flow::kIndirectJump:
        // `jmp [rip+x]` goes through one pointer, not through a table.
        if (insn.disp_offset == 0) read_jump_table(request, at);
        return;
      case Flow::kReturn:
      case Flow::kTrap:
      case Flow::kUnsupported:
        return;
    }
  }
}

void Discoverer::read_jump_table(const DiscoverRequest& request, LinkAddr at) {
  constexpr size_t kWindowInsns = 48;
  std::vector<WindowInsn> window;
  window.push_back({at, view_.code_at(at)});
  LinkAddr cursor = at;
  while (window.size() < kWindowInsns) {
    const Found* previous = nullptr;
    for (uint64_t size = 1; size <= 15 && cursor.value() - size >= base_.value(); ++size) {
      const Found* candidate = found_at(cursor - size);
      if (candidate && candidate->insn.size == size) {
        previous = candidate;
        break;
      }
    }
    if (!previous) break;
    cursor = base_ + previous->insn.offset;
    window.push_back({cursor, view_.code_at(cursor)});
  }
  std::reverse(window.begin(), window.end());
  std::vector<LinkAddr> targets = jump_table_targets(window, view_, request.range);
  for (LinkAddr target : targets) add_leader(request, target);
  if (!targets.empty()) tables_[static_cast<uint32_t>(at - base_)] = std::move(targets);
}

// In ascending order.
template <class Visit>
void Discoverer::for_each_leader(Visit visit) const {
  for (uint32_t i = 0; i < leaders_.size(); ++i) {
    for (uint64_t word = leaders_[i]; word != 0; word &= word - 1) {
      visit(i * kLeaderBits + static_cast<uint32_t>(std::countr_zero(word)));
    }
  }
}

// Cuts the decoded instructions into blocks.  Each instruction lands in exactly one block.
void Discoverer::build_blocks(Procedure& procedure) {
  for (const auto& [jump, targets] : tables_) {
    for (const LinkAddr target : targets) {
      const uint32_t slot = index_[static_cast<size_t>(target - base_)];
      if (slot != 0) found_[slot - 1].table_target = true;
    }
  }
  procedure.insns.reserve(found_.size());
  size_t leaders = 0;
  for (const uint64_t word : leaders_) leaders += static_cast<size_t>(std::popcount(word));
  std::vector<Block>& blocks = procedure.blocks.edit_anew();
  blocks.reserve(leaders);
  for_each_leader([&](uint32_t offset) {
    if (index_[offset] == 0) return;
    Found& leader = found_[index_[offset] - 1];
    leader.block = static_cast<BlockIndex>(blocks.size());
    Block block;
    block.offset = offset;
    block.first_insn = static_cast<uint32_t>(procedure.insns.size());
    block.from_jump_table = leader.table_target;
    uint32_t cursor = offset;
    while (true) {
      const Found& found = found_[index_[cursor] - 1];
      procedure.insns.push_back(found.insn);
      cursor += found.insn.size;
      if (found.insn.flow != Flow::kNone) break;
      if (cursor >= index_.size() || index_[cursor] == 0 || is_leader(cursor)) break;
    }
    block.insn_count = static_cast<uint32_t>(procedure.insns.size()) - block.first_insn;
    block.size_bytes = cursor - offset;
    find_return_by_jump(std::span(procedure.insns).subspan(block.first_insn), base_, view_);
    block.end = procedure.insns.back().flow;
    blocks.push_back(block);
  });
}

// What Procedure::block_at says, without searching.
BlockIndex Discoverer::block_at(LinkAddr address) const {
  const Found* found = found_at(address);
  return found == nullptr ? kExitBlock : found->block;
}

// The edge behind a block that hands control away and expects it back.  Without a block to come
// back to (a call that never returns, a trap), the flow ends there by an edge of its own, so that
// the count of such a block never rests on the ledger alone.  A `syscall` at a procedure's end goes
// on in the next one if it comes back.
void Discoverer::add_call_edge(const DiscoverRequest& request, const Procedure& procedure,
                               BlockIndex from) {
  const Block& block = procedure.blocks[from];
  const isa::Insn& last = procedure.insns[block.first_insn + block.insn_count - 1];
  const bool comes_back = block.end != Flow::kTrap && block.end != Flow::kUnsupported &&
                          !(block.end == Flow::kCall && request.never_returns &&
                            request.never_returns(LinkAddr(last.target)));
  const BlockIndex next = comes_back ? block_at(procedure.end_of(block)) : kExitBlock;
  if (next == kExitBlock && block.end == Flow::kSystemCall) {
    edges_.push_back(Edge{from, kExitBlock, EdgeKind::kLeave, procedure.end_of(block)});
    return;
  }
  if (next == kExitBlock) {
    edges_.push_back(Edge{from, kExitBlock, EdgeKind::kNoReturn, LinkAddr()});
    return;
  }
  if (block.end == Flow::kCall && LinkAddr(last.target) == procedure.end_of(block)) {
    // `call next; pop`: reads its own address, and never returns.
    edges_.push_back(Edge{from, next, EdgeKind::kJump, procedure.end_of(block)});
    return;
  }
  const EdgeKind kind =
      block.end == Flow::kSystemCall ? EdgeKind::kSystemCall : EdgeKind::kCallReturn;
  edges_.push_back(Edge{from, next, kind, procedure.end_of(block)});
  // A call of a local label may be answered by a jump (the return address is popped or replaced):
  // what does not come back ends by an edge of its own.  The same where the code may be replaced
  // while the call is open (what comes back then comes to the new code), and where back-traces do
  // not see the call.
  const BlockIndex local = block.end == Flow::kCall ? block_at(LinkAddr(last.target)) : kExitBlock;
  if ((local != kExitBlock && LinkAddr(last.target) != request.entry) ||
      (request.open_calls && kind == EdgeKind::kCallReturn)) {
    edges_.push_back(Edge{from, kExitBlock, EdgeKind::kNoReturn, LinkAddr()});
  }
}

void Discoverer::build_edges(const DiscoverRequest& request, Procedure& procedure) {
  auto add = [&](BlockIndex from, LinkAddr target, EdgeKind kind) {
    const BlockIndex to = block_at(target);
    edges_.push_back(Edge{from, to, to == kExitBlock ? EdgeKind::kLeave : kind, target});
  };
  edges_.clear();
  std::vector<Block>& blocks = procedure.blocks.edit();
  for (BlockIndex i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    block.first_edge = static_cast<uint32_t>(edges_.size());
    const isa::Insn& last = procedure.insns[block.first_insn + block.insn_count - 1];
    const LinkAddr next = procedure.end_of(block);
    switch (block.end) {
      case Flow::kNone:
        add(i, next, EdgeKind::kFallthrough);
        break;
      case Flow::kConditional:
      case Flow::kCountedJump:
        add(i, LinkAddr(last.target), EdgeKind::kTaken);
        add(i, next, EdgeKind::kFallthrough);
        break;
      case Flow::kJump:
        add(i, LinkAddr(last.target), EdgeKind::kJump);
        break;
      case Flow::kCall:
      case Flow::kIndirectCall:
      case Flow::kSystemCall:
      case Flow::kTrap:
      case Flow::kUnsupported:
        add_call_edge(request, procedure, i);
        break;
      case Flow::kReturn:
        edges_.push_back(Edge{i, kExitBlock, EdgeKind::kReturn, LinkAddr()});
        break;
      case Flow::kIndirectJump:
        if (auto it = tables_.find(last.offset); it != tables_.end()) {
          for (LinkAddr target : it->second) {
            const BlockIndex to = block_at(target);
            if (to != kExitBlock) {
              edges_.push_back(Edge{i, to, EdgeKind::kTableJump, target});
            }
          }
        }
        break;
    }
    block.edge_count = static_cast<uint32_t>(edges_.size()) - block.first_edge;
  }
  procedure.edges.edit_anew().assign(edges_.begin(), edges_.end());
}

void Discoverer::note_entry_looked_at(LinkAddr at, size_t size_bytes, EntryFlags& flags) {
  if (flags.ranges != 0 && entry_ranges_.back().end == at) {
    entry_ranges_.back().end += size_bytes;
    return;
  }
  entry_ranges_.push_back({at, at + size_bytes});
  ++flags.ranges;
}

// Which flags the code at an address looks at before it sets them, judged by the next instructions
// only.  What a procedure keeps on the stack first, and a call among them, is little enough that
// hardly any is undecided then.
Discoverer::EntryFlags Discoverer::flags_at_entry(LinkAddr target) {
  if (const EntryFlags* known = entry_flags_.find(target.value())) return *known;
  EntryFlags flags;
  flags.first_range = static_cast<uint32_t>(entry_ranges_.size());
  uint8_t undecided = isa::flag::kAll;
  uint8_t live = 0;
  LinkAddr at = target;
  constexpr int kLookAheadInsns = 16;
  for (int i = 0; i < kLookAheadInsns && undecided != 0; ++i) {
    const std::span<const uint8_t> bytes = view_.code_at(at);
    const isa::Insn insn = isa::decode(bytes, at.value());
    const size_t looked_at =
        insn.size == 0 ? std::min(isa::kInsnBytesMax, bytes.size()) : insn.size;
    note_entry_looked_at(at, looked_at, flags);
    if (insn.size == 0) break;
    live |= undecided & insn.flags_read;
    undecided &= static_cast<uint8_t>(~(insn.flags_written | insn.flags_read));
    at = at + insn.size;
    if (insn.flow == Flow::kJump || insn.flow == Flow::kCall) {
      at = LinkAddr(insn.target);
    } else if (insn.flow != Flow::kNone) {
      break;
    }
  }
  flags.live = live | undecided;
  if (target.value() != ~0ull) entry_flags_.set(target.value(), flags);
  return flags;
}

// What is looked at behind a direct branch that leaves: the next instructions there.  Where code
// may be replaced, that is not known.
uint8_t Discoverer::flags_behind(const DiscoverRequest& request, LinkAddr target) {
  if (request.replaceable) return isa::flag::kAll;
  const EntryFlags flags = flags_at_entry(target);
  const auto first = entry_ranges_.begin() + flags.first_range;
  looked_at_.insert(looked_at_.end(), first, first + flags.ranges);
  return flags.live;
}

// Backward data flow over the status flags.  At a return and an indirect branch every flag counts
// as live: what the other side does is not known, and the ABI's word is not taken for it.
void Discoverer::compute_flags(const DiscoverRequest& request, Procedure& procedure) {
  if (request.unstable) return;  // blocks begin with all flags live
  transfer_.assign(procedure.blocks.size(), {});
  for (BlockIndex i = 0; i < procedure.blocks.size(); ++i) {
    const Block& block = procedure.blocks[i];
    Transfer& t = transfer_[i];
    for (const isa::Insn& insn : procedure.insns_of(block)) {
      t.read |= static_cast<uint8_t>(insn.flags_read & ~t.written);
      t.written |= insn.flags_written;
    }
    const isa::Insn& last = procedure.insns[block.first_insn + block.insn_count - 1];
    if (block.end == Flow::kCall) {
      t.out_fixed = flags_behind(request, LinkAddr(last.target));
    } else if (block.end != Flow::kNone && block.end != Flow::kConditional &&
               block.end != Flow::kCountedJump && block.end != Flow::kJump) {
      t.out_fixed = isa::flag::kAll;
    } else {
      for (const Edge& edge : procedure.edges_of(block)) {
        if (edge.to == kExitBlock) t.out_fixed |= flags_behind(request, edge.target);
      }
    }
  }
  std::vector<Block>& blocks = procedure.blocks.edit();
  for (Block& block : blocks) block.flags_live_in = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = blocks.size(); i-- > 0;) {
      Block& block = blocks[i];
      uint8_t out = transfer_[i].out_fixed;
      if (block.end != Flow::kCall) {
        for (const Edge& edge : procedure.edges_of(block)) {
          if (edge.to != kExitBlock) out |= blocks[edge.to].flags_live_in;
        }
      }
      const auto in = static_cast<uint8_t>(transfer_[i].read | (out & ~transfer_[i].written));
      block.flags_live_out = out;
      if (in != block.flags_live_in) {
        block.flags_live_in = in;
        changed = true;
      }
    }
  }
}

}  // namespace tally::cfg
