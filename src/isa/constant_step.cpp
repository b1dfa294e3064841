// See constant_step.h.
#include "isa/constant_step.h"

#include <algorithm>

#include "isa/zydis.h"

namespace tally::isa {

namespace {

struct Decoded {
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

bool decode_fully(std::span<const uint8_t> bytes, Decoded& into) {
  const size_t length = std::min(bytes.size(), kInsnBytesMax);
  return ZYAN_SUCCESS(
      ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), length, &into.insn, into.operands));
}

bool is_wide_register(const ZydisDecodedOperand& operand) {
  return operand.type == ZYDIS_OPERAND_TYPE_REGISTER && operand.size == 64 &&
         register_number(operand.reg.value) >= 0 && register_number(operand.reg.value) < kRip;
}

// `lea r, [r + constant]`, all of 64 bits.
std::optional<int64_t> step_of_lea(const Decoded& d, int reg) {
  const ZydisDecodedOperand& from = d.operands[1];
  const bool is_itself = d.insn.address_width == 64 && from.mem.index == ZYDIS_REGISTER_NONE &&
                         register_number(from.mem.base) == reg;
  if (!is_itself || !from.mem.disp.has_displacement) return std::nullopt;
  return from.mem.disp.value;
}

std::optional<int64_t> step_of(const Decoded& d, int reg) {
  const ZydisDecodedOperand& by = d.operands[1];
  switch (d.insn.mnemonic) {
    case ZYDIS_MNEMONIC_INC:
      return 1;
    case ZYDIS_MNEMONIC_DEC:
      return -1;
    case ZYDIS_MNEMONIC_LEA:
      return step_of_lea(d, reg);
    case ZYDIS_MNEMONIC_ADD:
      if (by.type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return std::nullopt;
      return by.imm.value.s;
    case ZYDIS_MNEMONIC_SUB:
      if (by.type != ZYDIS_OPERAND_TYPE_IMMEDIATE) return std::nullopt;
      return -by.imm.value.s;  // of at most 32 bits, sign-extended
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<ConstantStep> constant_step(std::span<const uint8_t> bytes) {
  Decoded d;
  if (!decode_fully(bytes, d) || !is_wide_register(d.operands[0])) return std::nullopt;
  const int reg = register_number(d.operands[0].reg.value);
  const std::optional<int64_t> step = step_of(d, reg);
  if (!step || *step == 0) return std::nullopt;
  return ConstantStep{static_cast<uint8_t>(reg), *step};
}

std::optional<uint32_t> registers_written(std::span<const uint8_t> bytes) {
  Decoded d;
  if (!decode_fully(bytes, d)) return std::nullopt;
  uint32_t written = 0;
  for (int i = 0; i < d.insn.operand_count; ++i) {
    const ZydisDecodedOperand& operand = d.operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) == 0) continue;
    const int reg = register_number(operand.reg.value);
    if (reg >= 0 && reg < kRip) written |= 1u << reg;
  }
  return written;
}

}  // namespace tally::isa
