// Encoded pointers of .eh_frame and of exception tables: the low four bits are the format, the next
// three what the value is relative to (Linux Standard Base, "DWARF exception header encoding").
//
// Not handled: DW_EH_PE_funcrel and DW_EH_PE_aligned (no tool emits them for code addresses),
// DW_EH_PE_indirect; such a pointer is no pointer.
#pragma once

#include <cstdint>
#include <optional>

#include "base/bytes.h"

namespace tally::elf {

inline constexpr uint8_t kPointerOmitted = 0xff;
inline constexpr uint8_t kPointerAbsolute = 0x00;

// What encoded pointers are relative to.
struct PointerBases {
  uint64_t reader_begin = 0;  // address of the reader's byte 0, for pc-relative ones
  uint64_t data = 0;          // for data-relative ones
};

// The value as it stands, whatever it is relative to; nullopt: an unknown format, or cut short.
std::optional<uint64_t> read_pointer_value(ByteReader& reader, uint8_t encoding);
// The address; nullopt also for zero, which means "no address" whatever it is relative to: the
// linker dropped the procedure.
std::optional<uint64_t> read_pointer(ByteReader& reader, uint8_t encoding,
                                     const PointerBases& bases);

}  // namespace tally::elf
