// Executing one instruction outside of the processor.
//
// Problem.  A verifier that watches a program through breakpoints pays some 30 microseconds for
// each stop, and stepping over the branch at a block's end would be another one.  But what a branch
// does is known from the registers and a word of memory; the same holds for most instructions
// between two branches.
//
// Idea.  `Operation` is an instruction decoded once, with its operands.  `execute` does to a set of
// registers and to memory what the processor would do, or says that it cannot and changes nothing:
// then the processor does it.
//
//     cmp eax, 7      flags from the registers
//     jle 0x1234      flags -> rip                      no stop for either
//     call [rip+8]    8 bytes read, 8 bytes pushed
//
// Only what is certain is emulated: integer moves, sums, logic and comparisons, shifts by
// constants, and all near branches.  Not emulated: anything with a lock prefix or through gs,
// 32-bit addresses, string, vector and floating-point instructions, whatever looks at the processor
// itself.
// tests/unit/isa_emulate_test.cpp compares every form with the processor, on random operands.
//
// Limits: what the manual calls undefined (OF of a shift by more than one, AF of logic) is set as
// current processors do it.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "isa/insn.h"

namespace tally::isa {

struct Registers {
  std::array<uint64_t, 16> general{};  // in the processor's numbering: rax, rcx, rdx, rbx, rsp, ...
  uint64_t rip = 0;
  uint64_t flags = 0;
  uint64_t fs_base = 0;
};
inline constexpr size_t kRcx = 1;
inline constexpr size_t kRsp = 4;

class Memory {
 public:
  virtual ~Memory() = default;
  virtual bool read(uint64_t address, void* data, size_t size_bytes) = 0;
  virtual bool write(uint64_t address, const void* data, size_t size_bytes) = 0;
};

enum class Op : uint8_t {
  kUnknown,  // not emulated
  kNop,
  kMove,
  kMoveZero,
  kMoveSigned,
  kLea,
  kAdd,
  kSub,
  kCompare,
  kAnd,
  kOr,
  kXor,
  kTest,
  kInc,
  kDec,
  kNeg,
  kNot,
  kShiftLeft,
  kShiftRight,
  kShiftSigned,
  kPush,
  kPop,
  kWiden,     // cbw, cwde, cdqe
  kSpread,    // cwd, cdq, cqo
  kSet,       // setcc
  kMoveIf,    // cmovcc
  kMultiply,  // imul with two or three operands
  kLeave,
  kJump,
  kConditional,
  kCounted,  // loop, loope, loopne, jrcxz, jecxz
  kCall,
  kIndirectJump,
  kIndirectCall,
  kReturn,
};

enum class CountedForm : uint8_t { kLoop, kLoopEqual, kLoopNotEqual, kIfZero };

struct Operand {
  enum class Kind : uint8_t { kNone, kRegister, kMemory, kImmediate };
  Kind kind = Kind::kNone;
  uint8_t size_bytes = 0;
  int8_t number = -1;  // kRegister
  bool high_byte = false;
  bool from_fs = false;
  int8_t base = -1;  // kMemory: register, kRip (`value` is then the address itself) or -1
  int8_t index = -1;
  uint8_t scale = 0;
  int64_t value = 0;  // displacement, or immediate
};

struct Operation {
  Op op = Op::kUnknown;
  uint8_t size = 0;  // bytes of the instruction
  uint8_t condition = 0;
  uint8_t width_bytes = 0;  // of the operation
  uint16_t pop_bytes = 0;   // ret imm16
  CountedForm counted = CountedForm::kLoop;
  bool counter_32 = false;  // jecxz, and loop with ecx
  uint64_t target = 0;      // direct branches: link address
  std::array<Operand, 3> operands{};
  bool is_branch() const { return op >= Op::kJump; }
};

// `address` is where the bytes are in the module's file.
Operation decode_operation(std::span<const uint8_t> bytes, uint64_t address);

// Does it, rip included.  `bias` is what to add to link addresses.  False: nothing was changed.
bool execute(const Operation& operation, uint64_t bias, Registers& registers, Memory& memory);

// Whether a jcc with this condition (the low four bits of its opcode) is taken.
bool condition_holds(uint8_t condition, uint64_t flags);

}  // namespace tally::isa
