// What the files of this room that look at operands share of Zydis.
#pragma once

#include <Zydis/Zydis.h>

#include "isa/insn.h"

namespace tally::isa {

inline const ZydisDecoder& full_decoder() {
  static const ZydisDecoder decoder = [] {
    ZydisDecoder d;
    ZydisDecoderInit(&d, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
    return d;
  }();
  return decoder;
}

// Of a general register or a part of one: 0 to 15, in encoding order; kRip; -1 for any other.
inline int register_number(ZydisRegister reg) {
  if (reg == ZYDIS_REGISTER_RIP) return kRip;
  const ZydisRegister wide = ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
  if (wide >= ZYDIS_REGISTER_RAX && wide <= ZYDIS_REGISTER_R15) {
    return static_cast<int>(wide) - static_cast<int>(ZYDIS_REGISTER_RAX);
  }
  return -1;
}

}  // namespace tally::isa
