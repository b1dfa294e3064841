// Jumps that go through a table, and what in them says which entry it is.
//
// Problem.  A compiled `switch`, or an interpreter's dispatch, computes where it goes from a table
// of its own.  A translation that looks at the result alone must find out which of many addresses
// it is.
//
// Idea.  The program has an index.  If that is below 256, it may lead through a table of the
// translation's, too, and what remains is to make sure:
//
//     movzx  edx, r15b              an index below 256
//     movsxd rax, [rcx + rdx*4]     from here on the tail: done by each target's code for itself
//     add    rax, rcx
//     jmp    rax
//
// Where nothing in the block says that it is below 256, its low byte leads there just as well, as
// long as there is a register for it:
//
//     mov    eax, r14d              the tail begins here: in front of it, eax is free
//     movsxd rax, [r15 + rax*4]
//     add    rax, r15
//     jmp    rax
//
// Who comes to the block between the instruction that bounds the index and the tail comes without
// that: there the caller must not lead by it.  What may fault is not between them, since a handler
// may change any register.
//
// What is found is a way of guessing, never a proof: neither what is in the table nor its place is
// looked at here.
//
// Not handled: indexes that come from memory, or from an earlier block, without a mask; jumps
// through memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace tally::isa {

inline constexpr uint32_t kIndexMax = 255;  // of what is led by

struct IndexedJump {
  uint8_t first = 0;             // instruction of the block that the tail begins with
  uint8_t bounded_by = 0;        // the instruction that bounds the index; `first` if it is masked
  uint8_t index = 0;             // register that is below 256 in front of the tail ...
  bool masked = false;           // ... once it has been given the low byte of
  uint8_t from = 0;              // this one; until then it is free
  bool has_base = false;         // the table's address is in
  uint8_t base = 0;              // this register, plus
  int32_t displacement = 0;      // this; without a base that alone is it
  bool holds_distances = false;  // 32-bit distances from `base`, else 64-bit pointers
};

// `insns`: the bytes of each instruction of a block, a jump through a register the last.
std::optional<IndexedJump> indexed_jump(std::span<const std::span<const uint8_t>> insns);

// The address that `lea reg, [rip + x]` at `address` loads; nullopt if it is no such instruction.
std::optional<uint64_t> loads_address(std::span<const uint8_t> bytes, uint64_t address,
                                      unsigned reg);

}  // namespace tally::isa
