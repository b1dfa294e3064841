// See return_slot.h.
#include "isa/return_slot.h"

#include <algorithm>
#include <optional>

#include "isa/constant_step.h"
#include "isa/emulate.h"
#include "isa/insn.h"

namespace tally::isa {

namespace {

constexpr int kStackPointer = 4;

bool writes_first_operand(Op op) {
  return op > Op::kNop && op < Op::kPush && op != Op::kCompare && op != Op::kTest;
}

constexpr uint8_t kPushFlags = 0x9c, kPopFlags = 0x9d;

// `lfence`, which lets nothing behind it begin before the address is known.
bool is_fence(std::span<const uint8_t> bytes) {
  return bytes.size() == 3 && bytes[0] == 0x0f && bytes[1] == 0xae && bytes[2] == 0xe8;
}

bool is_register(const Operand& operand, int number) {
  return operand.kind == Operand::Kind::kRegister && operand.number == number;
}

// Its own stack is left, or another one is come to: that is more than a return (cache/events.h).
bool loads_stack_pointer(std::span<const uint8_t> bytes) {
  return decode(bytes, 0).loads_stack_pointer;
}

}  // namespace

bool step_back(std::span<const uint8_t> bytes, uint64_t address, ReturnSlot& slot) {
  constexpr int64_t kWordBytes = 8;
  const bool pushes_flags = bytes.size() == 1 && bytes[0] == kPushFlags;
  const bool pops_flags = bytes.size() == 1 && bytes[0] == kPopFlags;
  if (const auto step = constant_step(bytes); step && step->reg == kStackPointer) {
    slot.distance += step->step;
    return true;
  }
  const Operation operation = decode_operation(bytes, address);
  const Operand& to = operation.operands[0];
  if (operation.op == Op::kPush || pushes_flags) {
    slot.is_written |= slot.distance == 0;
    slot.distance -= kWordBytes;
    return pushes_flags || operation.width_bytes == kWordBytes;
  }
  if (operation.op == Op::kPop || pops_flags) {
    slot.distance += kWordBytes;
    const bool followed = operation.width_bytes == kWordBytes && to.number != kStackPointer;
    return pops_flags || followed;
  }
  const std::optional<uint32_t> written = registers_written(bytes);
  if (!written || (*written & 1u << kStackPointer) != 0) return false;
  const bool there = to.kind == Operand::Kind::kMemory && to.base == kStackPointer &&
                     to.index < 0 && to.value == slot.distance;
  slot.is_written |= there && writes_first_operand(operation.op);
  return true;
}

bool returns_by_jump(std::span<const std::span<const uint8_t>> insns) {
  constexpr uint32_t kAddressBytes = 8;
  if (insns.size() < 2) return false;
  size_t i = insns.size() - 1;
  const Operation jump = decode_operation(insns[i], 0);
  const Operand& to = jump.operands[0];
  if (jump.op != Op::kIndirectJump || to.kind != Operand::Kind::kRegister) return false;
  if (to.number == kStackPointer) return false;
  Operation popped;
  do {
    if (i-- == 0) return false;
    popped = decode_operation(insns[i], 0);
  } while (popped.op == Op::kNop || is_fence(insns[i]));
  if (popped.op != Op::kPop || popped.width_bytes != kAddressBytes) return false;
  if (!is_register(popped.operands[0], to.number)) return false;
  if (std::ranges::any_of(insns, loads_stack_pointer)) return false;
  ReturnSlot slot;
  // A stack pointer that cannot be followed has been set to where the frame began.
  while (i-- > 0 && step_back(insns[i], 0, slot)) {
    if (slot.distance < 0) return false;
  }
  return true;
}

}  // namespace tally::isa
