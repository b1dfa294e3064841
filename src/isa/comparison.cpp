// What a comparison asks for, by its first bytes.  See insn.h.
//
// Zydis would know, but takes 200 ns; a procedure has as many comparisons as branches.  What is not
// recognised is kOther, which is never wrong.
#include "isa/insn.h"

namespace tally::isa {
namespace {

constexpr uint8_t kRexW = 8;
constexpr uint8_t kRexR = 4;
constexpr uint8_t kRexB = 1;

bool is_legacy_prefix(uint8_t byte) {
  switch (byte) {
    case 0x2e:
    case 0x3e:
    case 0x64:
    case 0x65:
    case 0x66:
      return true;
    default:
      return false;
  }
}

// `test` of a register or memory with a register.
Question of_test(uint8_t opcode, uint8_t rex, uint8_t modrm) {
  const bool registers = modrm >> 6 == 3;
  const bool same = (modrm >> 3 & 7) == (modrm & 7) && ((rex & kRexR) != 0) == ((rex & kRexB) != 0);
  if (!registers || !same) return Question::kBits;
  const bool wide = opcode == 0x85 && (rex & kRexW) != 0;
  return wide ? Question::kNullPointer : Question::kOther;
}

}  // namespace

Question question_of(std::span<const uint8_t> bytes) {
  size_t i = 0;
  while (i < bytes.size() && is_legacy_prefix(bytes[i])) ++i;
  uint8_t rex = 0;
  if (i < bytes.size() && (bytes[i] & 0xf0) == 0x40) rex = bytes[i++];
  if (i + 1 >= bytes.size()) return Question::kOther;
  const uint8_t opcode = bytes[i];
  const uint8_t modrm = bytes[i + 1];
  const uint8_t extension = modrm >> 3 & 7;
  if (opcode == 0x84 || opcode == 0x85) return of_test(opcode, rex, modrm);
  const bool tests =
      opcode == 0xa8 || opcode == 0xa9 || ((opcode == 0xf6 || opcode == 0xf7) && extension < 2);
  const bool ands = (opcode >= 0x20 && opcode <= 0x25) ||
                    ((opcode == 0x80 || opcode == 0x81 || opcode == 0x83) && extension == 4);
  return tests || ands ? Question::kBits : Question::kOther;
}

}  // namespace tally::isa
