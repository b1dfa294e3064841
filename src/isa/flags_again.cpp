// See flags_again.h.
#include "isa/flags_again.h"

#include <algorithm>

#include "base/check.h"
#include "isa/zydis.h"

namespace tally::isa {
namespace {

constexpr uint32_t kInsnsMax = 16;  // looked at

struct Decoded {
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
};

bool decode_full(std::span<const uint8_t> bytes, Decoded& out) {
  return ZYAN_SUCCESS(
      ZydisDecoderDecodeFull(&full_decoder(), bytes.data(), bytes.size(), &out.insn, out.operands));
}

// A bit for each general register; 0 for any other.
uint32_t bit_of(ZydisRegister reg) {
  const int number = register_number(reg);
  return number >= 0 && number < 16 ? 1u << number : 0;
}

bool changes_flags(const ZydisDecodedInstruction& z) {
  if (z.cpu_flags == nullptr) return false;
  constexpr ZydisAccessedFlagsMask kStatus = ZYDIS_CPUFLAG_CF | ZYDIS_CPUFLAG_PF |
                                             ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF |
                                             ZYDIS_CPUFLAG_SF | ZYDIS_CPUFLAG_OF;
  const ZydisAccessedFlags& flags = *z.cpu_flags;
  return ((flags.modified | flags.set_0 | flags.set_1 | flags.undefined) & kStatus) != 0;
}

uint32_t registers_written(const Decoded& d) {
  uint32_t written = 0;
  for (unsigned i = 0; i < d.insn.operand_count; ++i) {
    const ZydisDecodedOperand& operand = d.operands[i];
    if (operand.type != ZYDIS_OPERAND_TYPE_REGISTER) continue;
    if ((operand.actions & ZYDIS_OPERAND_ACTION_MASK_WRITE) != 0) {
      written |= bit_of(operand.reg.value);
    }
  }
  return written;
}

enum class Way : uint8_t {
  kNone,
  kAgain,  // executed again, it makes the same flags and changes nothing
  kTest,   // its result has its flags
  kTurn,   // undone by an addition if it subtracts, by a subtraction if it adds
};

Way way_of(const Decoded& d) {
  const ZydisDecodedOperand& to = d.operands[0];
  const ZydisDecodedOperand& from = d.operands[1];
  if (d.insn.operand_count_visible != 2 || to.type != ZYDIS_OPERAND_TYPE_REGISTER) {
    return Way::kNone;
  }
  const bool immediate = from.type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  const bool plain = immediate || from.type == ZYDIS_OPERAND_TYPE_REGISTER;
  const bool apart = immediate || register_number(to.reg.value) != register_number(from.reg.value);
  switch (d.insn.mnemonic) {
    case ZYDIS_MNEMONIC_CMP:
    case ZYDIS_MNEMONIC_TEST:
      return plain ? Way::kAgain : Way::kNone;
    case ZYDIS_MNEMONIC_AND:
    case ZYDIS_MNEMONIC_OR:
    case ZYDIS_MNEMONIC_XOR:
      return Way::kTest;
    case ZYDIS_MNEMONIC_ADD:
    case ZYDIS_MNEMONIC_SUB:
      return plain && apart ? Way::kTurn : Way::kNone;
    default:
      return Way::kNone;
  }
}

// The same operands, added instead of subtracted or the other way round.  The opcodes of the eight
// old operations differ in bits 3 to 5, those with an immediate in the same bits of ModRM.
bool turn(const Decoded& d, std::span<uint8_t> bytes) {
  constexpr uint8_t kSubtracts = 5 << 3;  // add: 0
  constexpr uint8_t kGroup = 0x80;        // to 0x83: the operation is in ModRM
  const uint8_t opcode = d.insn.opcode;
  if ((opcode & 0xfc) == kGroup) {
    bytes[d.insn.raw.modrm.offset] ^= kSubtracts;
    return true;
  }
  if (opcode >= 0x40 || (opcode & 7) > 5) return false;
  const auto at = static_cast<size_t>((d.insn.attributes & ZYDIS_ATTRIB_HAS_REX) != 0 ? 1 : 0);
  bytes[at] ^= kSubtracts;
  return true;
}

void append(FlagsAgain& again, std::span<const uint8_t> bytes) {
  CHECK(again.size_bytes + bytes.size() <= again.bytes.size()) << bytes.size() << " bytes more";
  std::copy(bytes.begin(), bytes.end(), again.bytes.begin() + again.size_bytes);
  again.size_bytes = static_cast<uint8_t>(again.size_bytes + bytes.size());
}

// test x, x
void append_test(FlagsAgain& again, ZydisRegister reg) {
  const int number = register_number(reg);
  const ZydisRegisterClass size = ZydisRegisterGetClass(reg);
  const auto low = static_cast<uint8_t>(number & 7);
  const auto rex =
      static_cast<uint8_t>(0x40 | (size == ZYDIS_REGCLASS_GPR64 ? 8 : 0) | (number >= 8 ? 5 : 0));
  const uint8_t opcode = size == ZYDIS_REGCLASS_GPR8 ? 0x84 : 0x85;
  const uint8_t code[] = {rex, opcode, static_cast<uint8_t>(0xc0 | low << 3 | low)};
  append(again, code);
}

std::optional<FlagsAgain> make(const Decoded& d, std::span<const uint8_t> bytes) {
  const Way way = way_of(d);
  FlagsAgain again;
  if (way == Way::kNone) return std::nullopt;
  if (way == Way::kTest) {
    const ZydisRegister to = d.operands[0].reg.value;
    const ZydisRegisterClass size = ZydisRegisterGetClass(to);
    const bool second_byte = to >= ZYDIS_REGISTER_AH && to <= ZYDIS_REGISTER_BH;
    if (size == ZYDIS_REGCLASS_GPR16 || second_byte || bit_of(to) == 0) return std::nullopt;
    append_test(again, to);
    return again;
  }
  const bool rex = (d.insn.attributes & ZYDIS_ATTRIB_HAS_REX) != 0;
  const bool prefixed = bytes[rex ? 1 : 0] != d.insn.opcode;
  const bool too_long = 2 * d.insn.length > again.bytes.size();
  if (prefixed || too_long || d.insn.opcode_map != ZYDIS_OPCODE_MAP_DEFAULT) return std::nullopt;
  std::array<uint8_t, kInsnBytesMax> turned{};
  std::copy_n(bytes.begin(), d.insn.length, turned.begin());
  if (way == Way::kTurn && !turn(d, turned)) return std::nullopt;
  if (way == Way::kTurn) append(again, std::span(turned).first(d.insn.length));
  append(again, bytes.first(d.insn.length));
  return again;
}

// What it needs to be as it was: what it has read, or with `kTest` its result.
bool is_as_it_was(const Decoded& d, uint32_t changed) {
  const unsigned count = way_of(d) == Way::kTest ? 1 : d.insn.operand_count_visible;
  for (unsigned i = 0; i < count; ++i) {
    const ZydisDecodedOperand& operand = d.operands[i];
    if (operand.type == ZYDIS_OPERAND_TYPE_REGISTER && (bit_of(operand.reg.value) & changed) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<FlagsAgain> flags_again(std::span<const std::span<const uint8_t>> insns) {
  constexpr uint32_t kStackPointer = 1u << 4;
  uint32_t changed = kStackPointer;
  for (size_t i = insns.size(); i > 0 && insns.size() - i < kInsnsMax; --i) {
    Decoded d;
    if (!decode_full(insns[i - 1], d)) return std::nullopt;
    if (!changes_flags(d.insn)) {
      changed |= registers_written(d);
      continue;
    }
    if (!is_as_it_was(d, changed)) return std::nullopt;
    auto again = make(d, insns[i - 1]);
    if (again) again->insn = static_cast<uint32_t>(i - 1);
    return again;
  }
  return std::nullopt;
}

}  // namespace tally::isa
