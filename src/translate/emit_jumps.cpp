// Emission of one unit: its direct jumps.  See unit.h.
//
// Of the jumps inside a unit only those to blocks that are left out are ever patched.  Where the
// distance of another fits into a byte, it takes two bytes instead of five or six.  A block that
// lies behind is where it is; how far one is that lies ahead is guessed from the program's bytes
// and what will come between
// (`expected_bytes`).  Where the guess is wrong, the unit is emitted once more without it
// (emit_unit).
#include "translate/unit_emitter.h"

namespace tally::translate {

namespace {
constexpr uint32_t kCounterBytes = 9;  // of one that need not keep the flags
}

void UnitEmitter::emit_jump_along(BlockIndex from, uint32_t edge_index, bool may_fall) {
  const Edge& edge = procedure_.edges[edge_index];
  if (edge.to == cfg::kExitBlock) {
    as_->align_patch(1);
    as_->jmp(as_->here().value());
    add_link(last_field(), edge.target, from, edge_index);
    return;
  }
  if (may_fall && falls_into(edge.to)) return;
  emit_jump_inside(std::nullopt, from, edge.to);
}

void UnitEmitter::emit_jump_inside(std::optional<uint8_t> condition, BlockIndex from,
                                   BlockIndex to) {
  const auto near_opcode = static_cast<uint8_t>(condition ? 0x70 | *condition : 0xeb);
  if (is_near_behind(to)) {
    as_->u8(near_opcode);
    as_->u8(static_cast<uint8_t>(code_.blocks[to].label - (at() + 1)));
  } else if (is_near_ahead(from, to)) {
    as_->u8(near_opcode);
    near_fixups_.push_back({at(), from, to});
    as_->u8(0);
  } else {
    const bool is_patched = has_asks() && is_left_out(to);
    if (condition) {
      if (is_patched) as_->align_patch_jcc();
      as_->jcc(*condition, as_->here().value());
    } else {
      if (is_patched) as_->align_patch(1);
      as_->jmp(as_->here().value());
    }
    fixups_.push_back({last_field(), to});
  }
}

bool UnitEmitter::is_near_behind(BlockIndex to) const {
  constexpr uint32_t kDistanceMax = 128, kNearJumpBytes = 2;
  if (!request_.near_jumps) return false;
  const uint32_t label = code_.blocks[to].label, here = at();
  const bool is_same_part = (label < kColdOffset) == (here < kColdOffset);
  return code_.blocks[to].exists() && is_same_part && here + kNearJumpBytes - label <= kDistanceMax;
}

// Whether a jump at the end of a block, from where nothing of the block follows but the way along
// another edge, is expected to reach a block ahead with a distance of one byte.
bool UnitEmitter::is_near_ahead(BlockIndex from, BlockIndex to) const {
  constexpr uint32_t kDistanceMax = 127, kWayOnBytes = 5;
  if (!request_.near_jumps || request_.where != 0 || request_.checked) return false;
  if (is_late_ || code_.blocks[to].exists()) return false;
  const uint32_t begin = place_[from], end = place_[to];
  // What is not emitted yet lies ahead, if it is in the same part.
  const uint32_t in_body = plan_.order.empty() ? UINT32_MAX : plan_.in_body;
  if ((begin < in_body) != (end < in_body)) return false;
  if (std::ranges::find(far_, from) != far_.end()) return false;
  uint32_t distance = kWayOnBytes + edge_counters_bytes(procedure_.blocks[from]);
  for (uint32_t i = begin + 1; i < end && distance <= kDistanceMax; ++i) {
    distance += expected_bytes(in_order(i));
  }
  return distance <= kDistanceMax;
}

// Of the counters on the ways out of a block, each of one instruction.
uint32_t UnitEmitter::edge_counters_bytes(const cfg::Block& block) const {
  const auto first = plan_.edge_counter.begin() + block.first_edge;
  const auto counted = block.edge_count - std::count(first, first + block.edge_count, kNoCounter);
  return static_cast<uint32_t>(counted) * kCounterBytes;
}

// Mostly: with every counter of one instruction, for one.
uint32_t UnitEmitter::expected_bytes(BlockIndex b) const {
  constexpr uint32_t kLandingBytes = 9, kConditionalBytes = 3, kCallBytes = 10, kReturnBytes = 26,
                     kIndirectBytes = 45, kSyscallBytes = 45;
  const cfg::Block& block = procedure_.blocks[b];
  uint32_t bytes = block.size_bytes + edge_counters_bytes(block);
  if (plan_.block_counter[b] != kNoCounter) bytes += kCounterBytes;
  if (behind_a_call(b)) bytes += kLandingBytes;
  bytes += front_bytes_at_most(b);
  switch (block.end) {
    case Flow::kConditional:
    case Flow::kCountedJump:
    case Flow::kJump:
      return bytes + kConditionalBytes;
    case Flow::kCall:
      return bytes + kCallBytes;
    case Flow::kReturn:
      return bytes + kReturnBytes;
    case Flow::kIndirectCall:
    case Flow::kIndirectJump:
      return bytes + kIndirectBytes;
    case Flow::kSystemCall:
      return bytes + kSyscallBytes;
    case Flow::kTrap:
    case Flow::kUnsupported:
    case Flow::kNone:
      break;
  }
  return bytes;
}

void UnitEmitter::apply_near_fixups() {
  constexpr uint32_t kDistanceMax = 127;
  for (const NearFixup& fixup : near_fixups_) {
    const uint32_t distance = code_.blocks[fixup.to].label - (fixup.offset + 1);
    if (distance > kDistanceMax) {
      too_far_.push_back(fixup.from);
    } else if (fixup.offset < kColdOffset) {
      hot_.patch_u8(hot_base_ + fixup.offset, static_cast<uint8_t>(distance));
    } else {
      cold_.patch_u8(cold_base_ + (fixup.offset - kColdOffset), static_cast<uint8_t>(distance));
    }
  }
}

void UnitEmitter::emit_next(BlockIndex b, uint32_t edge_index) {
  if (has_probe(edge_index)) {
    BlockCode& code = code_.blocks.make(b);
    code.edge_counted = emit_edge_probe(edge_index);
    code.inline_edge = edge_index;
  }
  emit_jump_along(b, edge_index, true);
}

// The register that the edge crosses a loop's border with, and which way.
std::optional<UnitEmitter::CrossedEdge> UnitEmitter::crossed_by(uint32_t edge_index) const {
  if (plan_.inductions.empty()) return std::nullopt;
  const Edge& edge = procedure_.edges[edge_index];
  if (edge.from == edge.to) return std::nullopt;
  const auto crossed = [&](const Plan::Induction& induction, Crossing crossing) {
    return CrossedEdge{crossing, static_cast<uint32_t>(plan_.block_counter[induction.block]),
                       induction.reg};
  };
  const Plan::Induction* from = plan_.induction_of(edge.from);
  if (from != nullptr) return crossed(*from, Crossing::kLeaves);
  const Plan::Induction* to = edge.to == cfg::kExitBlock ? nullptr : plan_.induction_of(edge.to);
  if (to != nullptr) return crossed(*to, Crossing::kEnters);
  return std::nullopt;
}

// The edge's counter, and what crossing it does to a loop's; from where on both are done.
uint32_t UnitEmitter::emit_edge_probe(uint32_t edge_index) {
  const uint8_t live = procedure_.flags_live_into(procedure_.edges[edge_index]);
  const int32_t counter = number_of_edge(edge_index);
  const uint32_t counted = counter == kNoCounter ? at() : emit_count(counter, live);
  const std::optional<CrossedEdge> crossed = crossed_by(edge_index);
  if (!crossed) return counted;
  if (counter != kNoCounter) code_.half_probes.push_back({edge_index, counted});
  const auto flags = static_cast<uint8_t>(live | request_.flags_assumed_live);
  return to_unit_offset(
      emit_crossing(*as_, crossed->crossing, crossed->counter, crossed->reg, flags));
}

void UnitEmitter::add_link(Field field, LinkAddr target, BlockIndex block, uint32_t edge) {
  const Link link{field.address(), CacheAddr(), target, block, edge};
  const uint32_t index = put(link, code_.links, listed_.link, [&](const Link& listed) {
    return std::pair(listed.block, listed.edge) < std::pair(block, edge);
  });
  cold_links_.push_back({field, index});
}

void UnitEmitter::emit_taken(BlockIndex b, uint32_t edge_index, Field field) {
  const Edge& edge = procedure_.edges[edge_index];
  if (has_probe(edge_index)) {
    taken_edges_.push_back({field, edge_index});
  } else if (edge.to == cfg::kExitBlock) {
    add_link(field, edge.target, b, edge_index);
  } else {
    fixups_.push_back({field, edge.to});
  }
}

void UnitEmitter::emit_conditional(BlockIndex b, const Insn& insn) {
  const uint32_t taken = procedure_.blocks[b].first_edge;
  // Turned round where what it jumps to lies next.
  const Edge& ahead = procedure_.edges[taken];
  const bool turned = ahead.to != cfg::kExitBlock && falls_into(ahead.to);
  const auto condition = static_cast<uint8_t>(turned ? insn.condition ^ 1u : insn.condition);
  const uint32_t along = turned ? taken + 1 : taken;
  if (is_plain_inside(along)) {
    emit_jump_inside(condition, b, procedure_.edges[along].to);
  } else {
    const bool is_link = !has_probe(along);
    if (is_link || (has_asks() && leaves_out(procedure_.edges[along]))) as_->align_patch_jcc();
    as_->jcc(condition, as_->here().value());
    emit_taken(b, along, last_field());
  }
  emit_next(b, turned ? taken : taken + 1);
}

void UnitEmitter::emit_counted_jump(BlockIndex b, const Insn& insn) {
  const uint32_t taken = procedure_.blocks[b].first_edge;
  const auto bytes = bytes_of(insn);
  as_->bytes(bytes.data(), bytes.size() - 1);
  as_->u8(5);
  as_->jmp(as_->here().value());
  const uint32_t fall_field = as_->offset() - 4;
  as_->align_patch(1);
  as_->jmp(as_->here().value());
  emit_taken(b, taken, last_field());
  as_->patch_rel32(fall_field, as_->here().value());
  emit_next(b, taken + 1);
}

}  // namespace tally::translate
