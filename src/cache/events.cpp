// See events.h.
#include "cache/events.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "isa/emulate.h"
#include "isa/return_slot.h"

namespace tally::engine {

namespace {

constexpr int kStackPointer = 4;

// Whether an instruction leaves the stack, and where it is, alone.
bool spares_stack(const isa::Operation& operation) {
  using isa::Op;
  const isa::Operand& to = operation.operands[0];
  const bool known = operation.op != Op::kUnknown && operation.op < Op::kPush;
  return known && (to.kind != isa::Operand::Kind::kRegister || to.number != kStackPointer);
}

// Whether a block without a branch at its end is followed by a return at once, beyond the
// procedure: glibc's description of setcontext ends in front of its last two instructions.
bool returns_beyond(const cfg::Procedure& p, const cfg::Block& block, const cfg::CodeView& view,
                    std::vector<LinkRange>& sources) {
  constexpr int kInsnsMax = 4;
  if (p.end_of(block) != p.range.end) return false;
  const isa::Insn& last = p.insns[block.first_insn + block.insn_count - 1];
  const auto operation_at = [&](LinkAddr at) {
    return isa::decode_operation(view.code_at(at), at.value());
  };
  if (!spares_stack(operation_at(p.range.begin + last.offset))) return false;
  LinkAddr at = p.range.end;
  for (int i = 0; i < kInsnsMax; ++i) {
    const isa::Operation operation = operation_at(at);
    const size_t looked_at = operation.size == 0 ? isa::kInsnBytesMax : operation.size;
    sources.push_back({at, at + std::min(looked_at, view.code_at(at).size())});
    if (operation.op == isa::Op::kReturn) return operation.pop_bytes == 0;
    if (!spares_stack(operation)) return false;
    at += operation.size;
  }
  return false;
}

// Whether an instruction pushes something, or has an operand at a distance from the stack pointer.
// Nearly no block that returns has one, so that only few are looked at in earnest.
bool may_write_to_stack(std::span<const uint8_t> bytes) {
  const size_t first = bytes[0] == 0x41 ? 1 : 0;
  if (first >= bytes.size()) return false;
  const uint8_t op = bytes[first];
  const bool pushes = (op & 0xf8) == 0x50 || op == 0x68 || op == 0x6a || op == 0xff;
  if (pushes) return true;
  for (size_t i = first + 1; i + 1 < bytes.size(); ++i) {
    const bool has_sib = (bytes[i] & 7) == 4 && (bytes[i] & 0xc0) != 0xc0;
    if (has_sib && (bytes[i + 1] & 7) == kStackPointer) return true;
  }
  return false;
}

bool is_called_from_within(const cfg::Procedure& p, const cfg::Block& block) {
  const LinkAddr begin = p.range.begin + p.insns[block.first_insn].offset;
  return std::ranges::any_of(p.blocks, [&](const cfg::Block& other) {
    const isa::Insn& last = p.insns[other.first_insn + other.insn_count - 1];
    return last.flow == isa::Flow::kCall && LinkAddr(last.target) == begin;
  });
}

struct PoppedSlot {
  uint32_t insn_in_block = 0;
  int32_t distance_bytes = 0;  // from the stack pointer in front of that instruction
};

// What a return pops that its block has put there; nothing if that is the return address, for all
// that is known.  It is followed up to where the block begins, or a frame ends: if it lies below
// the stack pointer there, it has been pushed, else it lies over what was there before.
std::optional<PoppedSlot> popped_by_return(const cfg::Procedure& p, const cfg::Block& block,
                                           const cfg::CodeView& view) {
  constexpr int64_t kDistanceMax = 1 << 20;
  const auto insns = p.insns_of(block);
  const auto bytes_of = [&](const isa::Insn& insn) {
    return view.code_at(p.range.begin + insn.offset).first(insn.size);
  };
  if (std::ranges::none_of(
          insns, [&](const isa::Insn& insn) { return may_write_to_stack(bytes_of(insn)); })) {
    return std::nullopt;
  }
  isa::ReturnSlot slot;
  if (insns.back().by_jump) slot.distance = kPoppedSlotBytes;
  size_t first = insns.size() - 1;
  for (; first > 0; --first) {
    const isa::Insn& insn = insns[first - 1];
    isa::ReturnSlot before = slot;
    if (!isa::step_back(bytes_of(insn), (p.range.begin + insn.offset).value(), before)) {
      // Elsewhere the return address may have been moved along with the stack pointer.
      if (!isa::restores_stack_from_frame(bytes_of(insn))) return std::nullopt;
      break;
    }
    if (std::abs(before.distance) > kDistanceMax) return std::nullopt;
    slot = before;
  }
  if (!slot.is_written) return std::nullopt;
  const bool answered_by_jump = first == 0 && slot.distance == 0 && is_called_from_within(p, block);
  if (answered_by_jump) return std::nullopt;
  return PoppedSlot{static_cast<uint32_t>(first), static_cast<int32_t>(slot.distance)};
}

// Probes of one block that returns.
void find_changed_return(const cfg::Procedure& p, uint32_t b, const cfg::CodeView& view,
                         std::vector<WantedEvent>& events) {
  const cfg::Block& block = p.blocks[b];
  const std::optional<PoppedSlot> slot = popped_by_return(p, block, view);
  if (!slot) return;
  const uint32_t last = block.insn_count - 1;
  const bool pushed = slot->distance_bytes < 0;
  if (!pushed) {
    events.push_back({EventKind::kReturnSlot, block.first_insn + slot->insn_in_block, b,
                      slot->insn_in_block, slot->distance_bytes});
  }
  const EventKind kind = pushed ? EventKind::kJumpByReturn : EventKind::kReturnChanged;
  const bool is_popped = p.insns[block.first_insn + last].by_jump;
  events.push_back({kind, block.first_insn + last, b, last, is_popped ? kPoppedSlotBytes : 0});
}

// Probes of a procedure that loads the stack pointer and leaves.
std::vector<WantedEvent> find_departures(const cfg::Procedure& p, const cfg::CodeView& view,
                                         std::vector<LinkRange>& sources) {
  std::vector<std::pair<uint32_t, EventKind>> wanted;
  bool at_entry = false;
  for (const cfg::Block& block : p.blocks) {
    const bool goes_on = block.end == isa::Flow::kNone;
    if (!goes_on && block.end != isa::Flow::kReturn && block.end != isa::Flow::kIndirectJump) {
      continue;
    }
    bool loads = false;
    bool here = false;
    for (const isa::Insn& insn : p.insns_of(block)) {
      const auto bytes = view.code_at(p.range.begin + insn.offset).first(insn.size);
      if (insn.loads_stack_pointer) loads = true;
      if (insn.loads_stack_pointer && !isa::raises_as_ocaml(bytes)) here = true;
      if (isa::restores_stack_from_frame(bytes)) loads = false;
    }
    if (goes_on && loads) loads = returns_beyond(p, block, view, sources);
    at_entry |= here && (loads || !goes_on);
    if (!loads) continue;
    wanted.push_back({block.first_insn + block.insn_count - 1, EventKind::kCommit});
    wanted.push_back({block.first_insn, EventKind::kSnapshot});
  }
  if (at_entry && !wanted.empty()) {
    std::erase_if(wanted, [](const auto& one) { return one.second == EventKind::kSnapshot; });
    wanted.push_back({p.blocks[p.entry_block].first_insn, EventKind::kSnapshot});
  }
  std::sort(wanted.begin(), wanted.end());
  std::vector<WantedEvent> events;
  for (const auto& [insn, kind] : wanted) {
    // An entry block of one instruction needs no snapshot: there is nothing between.
    if (!events.empty() && events.back().insn == insn) continue;
    WantedEvent event{kind, insn, 0, 0, 0};
    for (uint32_t b = 0; b < p.blocks.size(); ++b) {
      const cfg::Block& block = p.blocks[b];
      if (block.first_insn <= insn && insn < block.first_insn + block.insn_count) {
        event.block = b;
        event.insn_in_block = insn - block.first_insn;
      }
    }
    events.push_back(event);
  }
  return events;
}

}  // namespace

std::vector<WantedEvent> find_events(const cfg::Procedure& p, const cfg::CodeView& view,
                                     std::vector<LinkRange>& sources) {
  std::vector<WantedEvent> events = find_departures(p, view, sources);
  for (uint32_t b = 0; b < p.blocks.size(); ++b) {
    const cfg::Block& block = p.blocks[b];
    const bool loads = std::ranges::any_of(
        p.insns_of(block), [](const isa::Insn& insn) { return insn.loads_stack_pointer; });
    if (block.end == isa::Flow::kReturn && !loads) find_changed_return(p, b, view, events);
  }
  std::ranges::stable_sort(events, {}, &WantedEvent::insn);
  // One probe for each instruction: what is about the stack as a whole says more.
  const auto same_insn = [](const WantedEvent& a, const WantedEvent& b) {
    return a.insn == b.insn;
  };
  events.erase(std::unique(events.begin(), events.end(), same_insn), events.end());
  return events;
}

}  // namespace tally::engine
