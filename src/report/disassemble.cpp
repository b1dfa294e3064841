// See disassemble.h.
#include "report/disassemble.h"

#include <Zydis/Zydis.h>

namespace tally::report {

std::string disassemble(std::span<const uint8_t> bytes, LinkAddr address, Syntax syntax) {
  ZydisDecoder decoder;
  ZydisDecodedInstruction instruction;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  const bool decoded = ZYAN_SUCCESS(
      ZydisDecoderDecodeFull(&decoder, bytes.data(), bytes.size(), &instruction, operands));
  if (!decoded || instruction.length != bytes.size()) {
    return "(the file's bytes are not the instruction that ran)";
  }
  ZydisFormatter formatter;
  ZydisFormatterInit(&formatter, syntax == Syntax::kIntel ? ZYDIS_FORMATTER_STYLE_INTEL
                                                          : ZYDIS_FORMATTER_STYLE_ATT);
  char text[256];
  const bool formatted = ZYAN_SUCCESS(ZydisFormatterFormatInstruction(
      &formatter, &instruction, operands, instruction.operand_count_visible, text, sizeof text,
      address.value(), nullptr));
  return formatted ? text : "(no text for this instruction)";
}

}  // namespace tally::report
