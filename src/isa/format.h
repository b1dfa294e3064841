// One instruction as text, in the syntax the reader prefers.
//
// Problem.  Listings show instructions to people, some of whom read Intel syntax and some AT&T's;
// and the bytes may come from a file that is no longer the code that ran.
//
// Idea.  Zydis' formatter in both styles, asked only after the bytes have proved to be exactly one
// instruction.
//
// Not handled: symbols in place of addresses; branch targets are absolute numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tally::isa {

enum class Syntax : uint8_t { kIntel, kAtt };

// The text of the instruction that fills `bytes` to the last one; nullopt when they are not one
// instruction of exactly that size.
std::optional<std::string> format_exactly(std::span<const uint8_t> bytes, uint64_t address,
                                          Syntax syntax);

}  // namespace tally::isa
