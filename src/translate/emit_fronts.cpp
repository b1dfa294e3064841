// Emission of one unit: room in front of blocks for the stub that leads there most.  See unit.h.
//
// What comes to a block by an indirect branch comes through a stub that compares, counts and jumps
// on.  Interpreters go through one with every instruction of their programs, and each handler is
// led to by hardly more than one jump.  Where the stub lies in front of the block, it need not
// jump. How long it will be is found out by writing it once to where it is thrown away; the cache
// writes it when the target is joined to the site, unless it has become another one by then.
#include "translate/unit_emitter.h"

namespace tally::translate {

namespace {
constexpr uint32_t kLineBytes = 64;  // of the instruction cache
constexpr uint32_t kEntryBytes = 16;
constexpr uint32_t kFrontBytesMax = 160;
}  // namespace

// Nothing may fall into the block from what lies in front of it, nor may a call come back to it.
bool UnitEmitter::may_have_front(BlockIndex b) const {
  if (request_.led_from.empty() || request_.led_from[b] == EmitRequest::kNotLed) return false;
  if (request_.compare != Compare::kLow32 || request_.checked || request_.where != 0) return false;
  // Of what is not in the body, not even the instructions need be known.
  const auto is_in_body = [&](BlockIndex one) {
    return plan_.order.empty() || place_[one] < plan_.in_body;
  };
  const BlockIndex from = request_.led_from[b];
  if (!is_in_body(b) || (from != Front::kElsewhere && !is_in_body(from))) return false;
  if (behind_a_call(b)) return false;
  if (place_[b] == 0) return true;
  const auto ways = procedure_.edges_of(procedure_.blocks[in_order(place_[b] - 1)]);
  return std::ranges::none_of(
      ways, [&](const Edge& edge) { return edge.to == b && edge.kind != EdgeKind::kTableJump; });
}

// Targets of an indirect jump, by an earlier run.
uint32_t UnitEmitter::ways_of_jump(BlockIndex b) const {
  const cfg::Block& block = procedure_.blocks[b];
  uint32_t ways = 0;
  for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
    const bool is_idle = !request_.idle_edges.empty() && request_.idle_edges[e] != 0;
    if (procedure_.edges[e].kind == EdgeKind::kTableJump && !is_idle) ++ways;
  }
  return ways;
}

// 0: there is to be none.
uint32_t UnitEmitter::front_bytes(BlockIndex b) const {
  const BlockIndex from = request_.led_from[b];
  const Jump jump = from == Front::kElsewhere ? Jump() : jump_of(from);
  const cfg::Block& block = procedure_.blocks[b];
  const uint64_t address = original(procedure_.address_of(block));
  const auto live = static_cast<uint8_t>(block.flags_live_in | request_.flags_assumed_live);
  std::array<uint8_t, kFrontBytesMax> thrown_away{};
  const CacheAddr at(kLineBytes);
  Assembler as(thrown_away.data(), thrown_away.size(), at);
  if (jump.head) {
    // Without a table of its own such a site has stubs of another kind.
    if (ways_of_jump(from) <= request_.indexed_above) return 0;
    const auto insns = procedure_.insns_of(procedure_.blocks[from]);
    const uint32_t begin = insns[jump.head->jump.first].offset;
    emit_indexed_front(as, bytes_.subspan(begin, insns.back().offset - begin), address, 0, live,
                       {at, at}, *jump.unspilled);
  } else if (jump.unspilled) {
    emit_unspilled_stub(as, address, 0, live, at, at, *jump.unspilled, {}, Ends::kFalls);
  } else {
    emit_stub(as, address, 0, live, at, at, request_.compare, {}, Ends::kFalls);
  }
  return as.overflowed() ? 0 : as.offset();
}

uint32_t UnitEmitter::front_bytes_at_most(BlockIndex b) const {
  return may_have_front(b) ? kLineBytes + front_bytes(b) : 0;
}

void UnitEmitter::emit_front(BlockIndex b) {
  constexpr uint8_t kInt3 = 0xcc;
  if (as_ != &hot_ || !may_have_front(b)) return;
  const uint32_t bytes = front_bytes(b);
  if (bytes == 0) return;
  const bool is_elsewhere = request_.led_from[b] == Front::kElsewhere;
  const uint32_t alignment = is_elsewhere ? kEntryBytes : kLineBytes;
  while (as_->here().value() % alignment != 0 && !as_->overflowed()) as_->u8(kInt3);
  code_.fronts.push_back({b, request_.led_from[b], as_->here()});
  for (uint32_t i = 0; i < bytes; ++i) as_->u8(kInt3);
}

}  // namespace tally::translate
