// One instruction as text, in the syntax the reader prefers.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/address.h"
#include "isa/format.h"

namespace tally::report {

using Syntax = isa::Syntax;

// Branch targets are printed as absolute addresses of the module.  Bytes that do not decode to an
// instruction of exactly `bytes.size()` bytes yield a remark instead: the code that ran was not the
// file's (it was modified while running).
std::string disassemble(std::span<const uint8_t> bytes, LinkAddr address, Syntax syntax);

}  // namespace tally::report
