// See disassemble.h.
#include "report/disassemble.h"

namespace tally::report {

std::string disassemble(std::span<const uint8_t> bytes, LinkAddr address, Syntax syntax) {
  return isa::format_exactly(bytes, address.value(), syntax)
      .value_or("(the file's bytes are not the instruction that ran)");
}

}  // namespace tally::report
