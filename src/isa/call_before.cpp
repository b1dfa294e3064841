// See call_before.h.
#include "isa/call_before.h"

namespace tally::isa {

namespace {

constexpr uint8_t kCall = 0xe8, kGroup = 0xff, kCallInGroup = 2;

// Of `ff` with this ModRM byte, and the SIB byte behind it.
size_t size_of_group(uint8_t modrm, uint8_t sib) {
  constexpr size_t kOpcodeAndModrm = 2;
  const uint8_t mod = modrm >> 6, rm = modrm & 7;
  if (mod == 3) return kOpcodeAndModrm;
  const bool has_sib = rm == 4;
  const bool no_base = mod == 0 && (has_sib ? (sib & 7) == 5 : rm == 5);
  const size_t displacement = mod == 1 ? 1 : mod == 2 || no_base ? 4 : 0;
  return kOpcodeAndModrm + (has_sib ? 1 : 0) + displacement;
}

}  // namespace

bool may_follow_call(std::span<const uint8_t> before) {
  constexpr size_t kDirectBytes = 5;
  const size_t count = before.size();
  if (count >= kDirectBytes && before[count - kDirectBytes] == kCall) return true;
  for (size_t size = 2; size <= count && size <= kCallBytesMax; ++size) {
    const auto insn = before.last(size);
    if (insn[0] != kGroup || (insn[1] >> 3 & 7) != kCallInGroup) continue;
    if (size_of_group(insn[1], size > 2 ? insn[2] : 0) == size) return true;
  }
  return false;
}

}  // namespace tally::isa
