#include "isa/format.h"

#include <Zydis/Zydis.h>

#include "base/check.h"

namespace tally::isa {
namespace {

ZydisFormatter make_formatter(ZydisFormatterStyle style) {
  ZydisFormatter formatter;
  CHECK(ZYAN_SUCCESS(ZydisFormatterInit(&formatter, style))) << "formatter style " << style;
  return formatter;
}

// Setting up a formatter takes longer than using it, so there is one of each kind.
const ZydisFormatter& formatter_of(Syntax syntax) {
  static const ZydisFormatter intel = make_formatter(ZYDIS_FORMATTER_STYLE_INTEL);
  static const ZydisFormatter att = make_formatter(ZYDIS_FORMATTER_STYLE_ATT);
  return syntax == Syntax::kIntel ? intel : att;
}

}  // namespace

std::optional<std::string> format_exactly(std::span<const uint8_t> bytes, uint64_t address,
                                          Syntax syntax) {
  ZydisDecoder decoder;
  CHECK(ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)));
  ZydisDecodedInstruction insn;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const bool decoded =
      ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes.data(), bytes.size(), &insn, operands));
  if (!decoded || insn.length != bytes.size()) return std::nullopt;
  // The longest text Zydis makes of a 15-byte instruction is well below this; should it ever not
  // fit, that is our mistake and not the program's.
  char text[256];
  const ZyanStatus status = ZydisFormatterFormatInstruction(&formatter_of(syntax), &insn, operands,
                                                            insn.operand_count_visible, text,
                                                            sizeof text, address, nullptr);
  CHECK(ZYAN_SUCCESS(status)) << "no text for the instruction at " << std::hex << address;
  return std::string(text);
}

}  // namespace tally::isa
