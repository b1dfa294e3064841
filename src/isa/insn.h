// One decoded x86-64 instruction, as little of it as translation needs.
//
// Problem.  Translation happens while the target waits, so decoding must cost well below 200 ns an
// instruction; yet it must know everything that depends on an instruction's own address: branches,
// RIP-relative operands, `syscall` (which stores the address in rcx).
//
// Idea.  Zydis decodes without operands; from its result we keep 32 bytes: length, kind of control
// flow, where the displacement sits, which status flags it reads and surely writes.  Everything
// that is not control flow is copied as it is, so its semantics never matter here.
//
// Conservative by construction: "flags written" lists only flags that are overwritten on every
// execution (a shift by cl may leave them alone), "flags read" everything that may be looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/address.h"

namespace tally::isa {

enum class Flow : uint8_t {
  kNone,          // execution continues with the next instruction
  kJump,          // jmp rel
  kConditional,   // jcc rel
  kCountedJump,   // loop, loope, loopne, jrcxz, jecxz: conditional, rel8 only
  kCall,          // call rel
  kIndirectJump,  // jmp r/m
  kIndirectCall,  // call r/m
  kReturn,        // ret, ret imm16; and see `by_jump`
  kSystemCall,    // syscall
  kTrap,          // ud2, hlt, int3, int n: raises a signal; copied as it is, ends a block
  kUnsupported,   // far transfers, int 0x80, sysenter, xbegin, use of gs: named when reached
};

// Status flags as one mask.
namespace flag {
inline constexpr uint8_t kCarry = 1;
inline constexpr uint8_t kParity = 2;
inline constexpr uint8_t kAdjust = 4;
inline constexpr uint8_t kZero = 8;
inline constexpr uint8_t kSign = 16;
inline constexpr uint8_t kOverflow = 32;
inline constexpr uint8_t kAll = 63;
// What `inc` changes: all but the carry.
inline constexpr uint8_t kChangedByInc = kAll & ~kCarry;
}  // namespace flag

inline constexpr uint64_t kSyscallBytes = 2;  // of `syscall` itself
// No instruction is longer.
inline constexpr size_t kInsnBytesMax = 15;

struct Insn {
  uint64_t target = 0;  // direct branches: the target; RIP-relative operands: the effective address
  uint32_t offset = 0;  // set by discovery: distance from the procedure's base
  uint16_t return_pop_bytes = 0;  // ret imm16
  uint8_t size = 0;               // 1..15
  Flow flow = Flow::kNone;
  uint8_t flags_read = 0;
  uint8_t flags_written = 0;
  uint8_t condition = 0;     // kConditional: the low four bits of the opcode
  uint8_t disp_offset = 0;   // RIP-relative operand: where its 32-bit displacement sits; 0 if none
  uint8_t modrm_offset = 0;  // indirect branches: where the ModRM byte sits
  uint8_t immediate_bytes = 0;
  bool has_modrm = false;
  bool loads_stack_pointer = false;  // mov rsp, r/m (not from rbp): may abandon frames
  bool repeated = false;             // rep, repe, repne string instruction
  bool may_change_code = false;      // set by discovery, in code that may change while it runs
  bool by_jump = false;  // set by discovery: kReturn by a jump to what was popped right before
  bool operator==(const Insn&) const = default;
};

// Decodes the instruction at `address` from `bytes`; size 0 when the bytes are no instruction or
// too few.
Insn decode(std::span<const uint8_t> bytes, uint64_t address);
// The same without the template cache in front of Zydis: the reference that tests compare with.
Insn decode_uncached(std::span<const uint8_t> bytes, uint64_t address);

// Why an instruction is kUnsupported, in words; for the error message.
std::string describe(std::span<const uint8_t> bytes, uint64_t address);

// True for `leave` and `lea rsp, [rbp+x]`: the stack pointer comes from the procedure's own frame.
bool restores_stack_from_frame(std::span<const uint8_t> bytes);
// True for `mov rsp, r14` and `mov rsp, [r14+x]`, by which OCaml raises an exception.
bool raises_as_ocaml(std::span<const uint8_t> bytes);

// True when the instruction may write memory other than by way of the stack pointer.
bool writes_memory(std::span<const uint8_t> bytes);
// True for what threads synchronise by: atomic instructions, `mfence`, `pause`.
bool synchronises(std::span<const uint8_t> bytes);
// True for what reads the time or random numbers: `rdtsc`, `rdtscp`, `rdrand`, `rdseed`.
bool reads_chance(std::span<const uint8_t> bytes);

// What an instruction that sets the flags is likely to be asked for, judged by its opcode alone.
enum class Question : uint8_t {
  kOther,
  kNullPointer,  // `test r, r` of 64 bits: is it zero?
  kBits,         // `test` with a mask, `and`: is any of these bits set?
};
Question question_of(std::span<const uint8_t> bytes);

// Where the pointer lies that a stub of a linkage table, which begins at `address`, jumps through;
// nullopt: the code there is no such stub.
std::optional<uint64_t> pointer_of_stub(std::span<const uint8_t> bytes, uint64_t address);

// Text of one instruction in Intel syntax, for dumps.
std::string format(std::span<const uint8_t> bytes, uint64_t address);

// What a jump through a table looks at: the pieces of the instruction's operands, decoded in full.
// Only used for the few instructions in front of an indirect jump.
struct MemoryOperand {
  int base = -1;   // register number 0..15, -1 none, kRip
  int index = -1;  // register number 0..15, -1 none
  int scale = 0;
  int64_t displacement = 0;  // absolute address when base is kRip
  uint8_t size_bytes = 0;
};
inline constexpr int kRip = 16;

enum class TableStep : uint8_t { kOther, kLea, kLoad, kLoadSigned, kAdd, kMove, kCompare, kJump };

struct TableInsn {
  TableStep step = TableStep::kOther;
  int destination = -1;  // register written (kLea, kLoad, kAdd, kMove) or compared (kCompare)
  int source = -1;       // register read (kAdd, kMove), or jumped through (kJump)
  bool has_memory = false;
  MemoryOperand memory;
  int64_t immediate = 0;      // kCompare
  uint32_t written_mask = 0;  // registers the instruction writes, by number
};
TableInsn decode_for_table(std::span<const uint8_t> bytes, uint64_t address);

}  // namespace tally::isa
