// Executing one decoded instruction.  See emulate.h.
#include "isa/emulate.h"

#include <bit>

namespace tally::isa {
namespace {

constexpr uint64_t kCf = 1, kPf = 4, kAf = 16, kZf = 64, kSf = 128, kOf = 2048;
constexpr uint64_t kStatus = kCf | kPf | kAf | kZf | kSf | kOf;

uint64_t mask_of(unsigned size_bytes) {
  return size_bytes >= 8 ? ~0ull : (1ull << (size_bytes * 8)) - 1;
}
uint64_t sign_of(unsigned size_bytes) {
  return 1ull << (size_bytes * 8 - 1);
}
uint64_t extend(uint64_t value, unsigned size_bytes) {
  const uint64_t sign = sign_of(size_bytes);
  value &= mask_of(size_bytes);
  return (value ^ sign) - sign;
}

bool is_canonical(uint64_t address) {
  const uint64_t upper = address >> 47;
  return upper == 0 || upper == 0x1ffff;
}

// Flags that follow from the result alone.
uint64_t result_flags(uint64_t result, unsigned size_bytes) {
  uint64_t flags = 0;
  if ((result & mask_of(size_bytes)) == 0) flags |= kZf;
  if (result & sign_of(size_bytes)) flags |= kSf;
  if (std::popcount(result & 0xff) % 2 == 0) flags |= kPf;
  return flags;
}

// One instruction in progress: everything is worked out on copies, so that nothing has changed
// when some part turns out to be impossible.
class Step {
 public:
  Step(const Operation& operation, uint64_t bias, const Registers& registers, Memory& memory)
      : o_(operation), bias_(bias), regs_(registers), memory_(memory) {}

  bool run() {
    regs_.rip += o_.size;
    if (!o_.is_branch()) return plain();
    // The processor faults at a branch to an address that cannot be, not behind it.
    return branch() && is_canonical(regs_.rip);
  }
  const Registers& registers() const { return regs_; }

 private:
  uint64_t address(const Operand& m) const {
    uint64_t result = static_cast<uint64_t>(m.value);
    if (m.base == kRip) {
      result += bias_;
    } else if (m.base >= 0) {
      result += regs_.general[static_cast<size_t>(m.base)];
    }
    if (m.index >= 0) result += regs_.general[static_cast<size_t>(m.index)] * m.scale;
    return m.from_fs ? result + regs_.fs_base : result;
  }

  bool load(const Operand& from, uint64_t& value) {
    switch (from.kind) {
      case Operand::Kind::kRegister:
        value = regs_.general[static_cast<size_t>(from.number)];
        if (from.high_byte) value >>= 8;
        value &= mask_of(from.size_bytes);
        return true;
      case Operand::Kind::kImmediate:
        value = static_cast<uint64_t>(from.value);
        return true;
      case Operand::Kind::kMemory:
        value = 0;
        return memory_.read(address(from), &value, from.size_bytes);
      case Operand::Kind::kNone:
        break;
    }
    return false;
  }

  void set_register(const Operand& to, uint64_t value) {
    uint64_t& reg = regs_.general[static_cast<size_t>(to.number)];
    if (to.high_byte) {
      reg = (reg & ~0xff00ull) | (value & 0xff) << 8;
    } else if (to.size_bytes == 4) {
      reg = value & 0xffffffff;  // the upper half is cleared
    } else {
      const uint64_t mask = mask_of(to.size_bytes);
      reg = (reg & ~mask) | (value & mask);
    }
  }

  bool store(const Operand& to, uint64_t value) {
    if (to.kind == Operand::Kind::kMemory) {
      return memory_.write(address(to), &value, to.size_bytes);
    }
    if (to.kind != Operand::Kind::kRegister) return false;
    set_register(to, value);
    return true;
  }

  void set_flags(uint64_t flags, uint64_t affected = kStatus) {
    regs_.flags = (regs_.flags & ~affected) | (flags & affected);
  }

  bool push(uint64_t value) {
    const uint64_t to = regs_.general[kRsp] - 8;
    if (!memory_.write(to, &value, 8)) return false;
    regs_.general[kRsp] = to;
    return true;
  }

  bool pop(uint64_t& value) {
    if (!memory_.read(regs_.general[kRsp], &value, 8)) return false;
    regs_.general[kRsp] += 8;
    return true;
  }

  bool branch() {
    uint64_t value = 0;
    switch (o_.op) {
      case Op::kJump:
        regs_.rip = o_.target + bias_;
        return true;
      case Op::kConditional:
        if (condition_holds(o_.condition, regs_.flags)) regs_.rip = o_.target + bias_;
        return true;
      case Op::kCounted:
        return counted();
      case Op::kCall:
        if (!push(regs_.rip)) return false;
        regs_.rip = o_.target + bias_;
        return true;
      case Op::kIndirectJump:
        return load(o_.operands[0], regs_.rip);
      case Op::kIndirectCall:
        if (!load(o_.operands[0], value) || !push(regs_.rip)) return false;
        regs_.rip = value;
        return true;
      case Op::kReturn:
        if (!pop(regs_.rip)) return false;
        regs_.general[kRsp] += o_.pop_bytes;
        return true;
      default:
        return false;
    }
  }

  bool counted() {
    uint64_t& rcx = regs_.general[kRcx];
    uint64_t count = o_.counter_32 ? rcx & 0xffffffff : rcx;
    bool taken = count == 0;
    if (o_.counted != CountedForm::kIfZero) {
      count = o_.counter_32 ? (count - 1) & 0xffffffff : count - 1;
      rcx = count;
      const bool zero = (regs_.flags & kZf) != 0;
      taken = count != 0 &&
              (o_.counted == CountedForm::kLoop || zero == (o_.counted == CountedForm::kLoopEqual));
    }
    if (taken) regs_.rip = o_.target + bias_;
    return true;
  }

  bool plain() {
    const Operand& to = o_.operands[0];
    const Operand& from = o_.operands[1];
    uint64_t value = 0;
    switch (o_.op) {
      case Op::kNop:
        return true;
      case Op::kMove:
      case Op::kMoveZero:
        return load(from, value) && store(to, value);
      case Op::kMoveSigned:
        return load(from, value) && store(to, extend(value, from.size_bytes));
      case Op::kLea:
        return store(to, address(from));
      case Op::kPush:
        // A pushed constant is extended; 16-bit pushes nobody writes.
        return o_.width_bytes == 8 && load(to, value) && push(value);
      case Op::kPop:
        return o_.width_bytes == 8 && to.kind == Operand::Kind::kRegister && pop(value) &&
               store(to, value);
      case Op::kLeave:
        regs_.general[kRsp] = regs_.general[5];
        return pop(regs_.general[5]);
      case Op::kSet:
        return store(to, condition_holds(o_.condition, regs_.flags) ? 1 : 0);
      case Op::kMoveIf:
        // The source is read in any case, and a 32-bit destination is always cleared above.
        if (!load(from, value)) return false;
        if (!condition_holds(o_.condition, regs_.flags) && !load(to, value)) return false;
        return store(to, value);
      case Op::kWiden:
        return widen();
      case Op::kSpread:
        return spread();
      default:
        return arithmetic();
    }
  }

  bool widen() {
    const Operand whole{
        .kind = Operand::Kind::kRegister, .size_bytes = o_.width_bytes, .number = 0};
    set_register(whole, extend(regs_.general[0], o_.width_bytes / 2u));
    return true;
  }

  bool spread() {
    const Operand upper{
        .kind = Operand::Kind::kRegister, .size_bytes = o_.width_bytes, .number = 2};
    set_register(upper, (regs_.general[0] & sign_of(o_.width_bytes)) ? ~0ull : 0);
    return true;
  }

  bool arithmetic() {
    const Operand& to = o_.operands[0];
    const unsigned size = to.size_bytes;
    uint64_t a = 0;
    uint64_t b = 0;
    if (o_.op == Op::kMultiply) return multiply();
    if (!load(to, a)) return false;
    if (o_.operands[1].kind != Operand::Kind::kNone && !load(o_.operands[1], b)) return false;
    b &= mask_of(size);
    switch (o_.op) {
      case Op::kAdd:
        return sum(a, b, a + b, kStatus);
      case Op::kInc:
        return sum(a, 1, a + 1, kStatus & ~kCf);
      case Op::kSub:
        return difference(a, b, kStatus, true);
      case Op::kCompare:
        return difference(a, b, kStatus, false);
      case Op::kDec:
        return difference(a, 1, kStatus & ~kCf, true);
      case Op::kNeg:
        return difference(0, a, kStatus, true);
      case Op::kAnd:
        return logic(a & b, true);
      case Op::kOr:
        return logic(a | b, true);
      case Op::kXor:
        return logic(a ^ b, true);
      case Op::kTest:
        return logic(a & b, false);
      case Op::kNot:
        return store(to, ~a);
      case Op::kShiftLeft:
      case Op::kShiftRight:
      case Op::kShiftSigned:
        return shift(a, static_cast<unsigned>(b));
      default:
        return false;
    }
  }

  bool sum(uint64_t a, uint64_t b, uint64_t result, uint64_t affected) {
    const unsigned size = o_.operands[0].size_bytes;
    const uint64_t mask = mask_of(size);
    uint64_t flags = result_flags(result, size) | ((a ^ b ^ result) & kAf);
    if ((result & mask) < (a & mask)) flags |= kCf;
    if ((a ^ result) & (b ^ result) & sign_of(size)) flags |= kOf;
    if (!store(o_.operands[0], result)) return false;
    set_flags(flags, affected);
    return true;
  }

  bool difference(uint64_t a, uint64_t b, uint64_t affected, bool keep) {
    const unsigned size = o_.operands[0].size_bytes;
    const uint64_t mask = mask_of(size);
    const uint64_t result = a - b;
    uint64_t flags = result_flags(result, size) | ((a ^ b ^ result) & kAf);
    if ((a & mask) < (b & mask)) flags |= kCf;
    if ((a ^ b) & (a ^ result) & sign_of(size)) flags |= kOf;
    if (keep && !store(o_.operands[0], result)) return false;
    set_flags(flags, affected);
    return true;
  }

  bool logic(uint64_t result, bool keep) {
    if (keep && !store(o_.operands[0], result)) return false;
    set_flags(result_flags(result, o_.operands[0].size_bytes));
    return true;
  }

  bool shift(uint64_t a, unsigned count) {
    const Operand& to = o_.operands[0];
    const unsigned bits = to.size_bytes * 8u;
    count &= bits == 64 ? 63u : 31u;
    if (count == 0) return store(to, a);
    // Narrow operands shifted by more than their width: the manual leaves the carry open.
    if (count >= bits) return false;
    const bool negative = (a & sign_of(to.size_bytes)) != 0;
    uint64_t result = 0;
    uint64_t flags = 0;
    if (o_.op == Op::kShiftLeft) {
      result = (a << count) & mask_of(to.size_bytes);
      const bool carry = ((a >> (bits - count)) & 1) != 0;
      if (carry) flags |= kCf;
      if (carry != ((result & sign_of(to.size_bytes)) != 0)) flags |= kOf;
    } else {
      const uint64_t source = o_.op == Op::kShiftSigned ? extend(a, to.size_bytes) : a;
      result = o_.op == Op::kShiftSigned
                   ? static_cast<uint64_t>(static_cast<int64_t>(source) >> count)
                   : source >> count;
      result &= mask_of(to.size_bytes);
      if ((source >> (count - 1)) & 1) flags |= kCf;
      if (o_.op == Op::kShiftRight && count == 1 && negative) flags |= kOf;
    }
    flags |= result_flags(result, to.size_bytes);
    if (!store(to, result)) return false;
    set_flags(flags);
    return true;
  }

  bool multiply() {
    const bool three = o_.operands[2].kind != Operand::Kind::kNone;
    const unsigned size = o_.operands[0].size_bytes;
    uint64_t a = 0;
    uint64_t b = 0;
    if (!load(o_.operands[three ? 1 : 0], a) || !load(o_.operands[three ? 2 : 1], b)) return false;
    const __int128 exact = static_cast<__int128>(static_cast<int64_t>(extend(a, size))) *
                           static_cast<int64_t>(extend(b, size));
    const auto result = static_cast<uint64_t>(exact);
    const bool fits = exact == static_cast<int64_t>(extend(result, size));
    set_register(o_.operands[0], result);
    // SF, ZF, AF and PF are undefined: processors differ, so only what the manual promises.
    set_flags(fits ? 0 : kCf | kOf, kCf | kOf);
    return true;
  }

  const Operation& o_;
  uint64_t bias_;
  Registers regs_;
  Memory& memory_;
};

}  // namespace

bool condition_holds(uint8_t condition, uint64_t flags) {
  const bool sign_differs = ((flags & kSf) != 0) != ((flags & kOf) != 0);
  bool holds = false;
  switch (condition >> 1) {
    case 0:
      holds = (flags & kOf) != 0;
      break;
    case 1:
      holds = (flags & kCf) != 0;
      break;
    case 2:
      holds = (flags & kZf) != 0;
      break;
    case 3:
      holds = (flags & (kCf | kZf)) != 0;
      break;
    case 4:
      holds = (flags & kSf) != 0;
      break;
    case 5:
      holds = (flags & kPf) != 0;
      break;
    case 6:
      holds = sign_differs;
      break;
    default:
      holds = sign_differs || (flags & kZf) != 0;
      break;
  }
  return holds != ((condition & 1) != 0);
}

bool execute(const Operation& operation, uint64_t bias, Registers& registers, Memory& memory) {
  // With alignment checks on, what is not aligned faults, and the processor knows best what that
  // is.
  constexpr uint64_t kAlignmentChecks = 0x40000;
  if ((registers.flags & kAlignmentChecks) != 0) return false;
  if (operation.op == Op::kUnknown) return false;
  Step step(operation, bias, registers, memory);
  if (!step.run()) return false;
  registers = step.registers();
  return true;
}

}  // namespace tally::isa
