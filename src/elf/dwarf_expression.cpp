// The stack machine of DWARF 5, section 2.5, as far as call frames use it.  All arithmetic is
// modulo 2^64; only the operations that the standard calls signed look at the sign.
#include "elf/dwarf_expression.h"

#include <dwarf.h>

#include <algorithm>
#include <utility>

namespace tally::elf {
namespace {

constexpr size_t kStackMax = 64;
constexpr size_t kStepsMax = 1000;

int64_t as_signed(uint64_t value) {
  return static_cast<int64_t>(value);
}

std::optional<uint64_t> compute(uint8_t atom, uint64_t a, uint64_t b) {
  switch (atom) {
    case DW_OP_and:
      return a & b;
    case DW_OP_or:
      return a | b;
    case DW_OP_xor:
      return a ^ b;
    case DW_OP_plus:
      return a + b;
    case DW_OP_minus:
      return a - b;
    case DW_OP_mul:
      return a * b;
    case DW_OP_div:
      if (b == 0) return std::nullopt;
      if (b == UINT64_MAX) return 0 - a;  // the one signed division that overflows is among these
      return static_cast<uint64_t>(as_signed(a) / as_signed(b));
    case DW_OP_mod:
      return b == 0 ? std::nullopt : std::optional(a % b);
    case DW_OP_shl:
      return b < 64 ? a << b : 0;
    case DW_OP_shr:
      return b < 64 ? a >> b : 0;
    case DW_OP_shra:
      return static_cast<uint64_t>(as_signed(a) >> std::min<uint64_t>(b, 63));
    case DW_OP_eq:
      return a == b;
    case DW_OP_ne:
      return a != b;
    case DW_OP_lt:
      return as_signed(a) < as_signed(b);
    case DW_OP_le:
      return as_signed(a) <= as_signed(b);
    case DW_OP_gt:
      return as_signed(a) > as_signed(b);
    case DW_OP_ge:
      return as_signed(a) >= as_signed(b);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Location> ExpressionEvaluator::evaluate(std::span<const Dwarf_Op> operations) {
  stack_.clear();
  kind_ = LocationKind::kMemory;
  next_ = 0;
  for (size_t steps = 0; next_ < operations.size(); ++steps) {
    if (steps == kStepsMax) {
      fail(TraceEnd::kUnsupported, "DWARF expression does not end");
      return std::nullopt;
    }
    const Dwarf_Op& operation = operations[next_++];
    const bool branch = operation.atom == DW_OP_skip || operation.atom == DW_OP_bra;
    if (!(branch ? jump(operations, operation) : step(operation))) return std::nullopt;
  }
  const auto result = pop();
  if (!result) return std::nullopt;
  return Location{kind_, *result};
}

bool ExpressionEvaluator::step(const Dwarf_Op& operation) {
  if (kind_ == LocationKind::kValue) {
    return fail(TraceEnd::kUnsupported, "DWARF expression goes on after its value");
  }
  const uint8_t atom = operation.atom;
  if (atom >= DW_OP_lit0 && atom <= DW_OP_lit31) return push(uint64_t{atom} - DW_OP_lit0);
  if (atom >= DW_OP_breg0 && atom <= DW_OP_breg31) {
    return push_register(uint64_t{atom} - DW_OP_breg0, operation.number);
  }
  if (atom >= DW_OP_reg0 && atom <= DW_OP_reg31) {
    kind_ = LocationKind::kValue;
    return push_register(uint64_t{atom} - DW_OP_reg0, 0);
  }
  return step_pushing(operation);
}

bool ExpressionEvaluator::step_pushing(const Dwarf_Op& operation) {
  switch (operation.atom) {
    case DW_OP_addr:  // an address of the file; the bias would have to be added
      return fail(TraceEnd::kUnsupported, "DWARF expression with an absolute address");
    case DW_OP_const1u:
    case DW_OP_const1s:
    case DW_OP_const2u:
    case DW_OP_const2s:
    case DW_OP_const4u:
    case DW_OP_const4s:
    case DW_OP_const8u:
    case DW_OP_const8s:
    case DW_OP_constu:
    case DW_OP_consts:
      return push(operation.number);  // libdw has extended the sign
    case DW_OP_bregx:
      return push_register(operation.number, operation.number2);
    case DW_OP_regx:
      kind_ = LocationKind::kValue;
      return push_register(operation.number, 0);
    case DW_OP_call_frame_cfa:
      if (!cfa_) return fail(TraceEnd::kUnsupported, "the CFA is defined by itself");
      return push(*cfa_);
    default:
      return step_on_stack(operation);
  }
}

bool ExpressionEvaluator::step_on_stack(const Dwarf_Op& operation) {
  switch (operation.atom) {
    case DW_OP_nop:
      return true;
    case DW_OP_dup:
      return pick(0);
    case DW_OP_over:
      return pick(1);
    case DW_OP_pick:
      return pick(operation.number);
    case DW_OP_drop:
      return pop().has_value();
    case DW_OP_rot:
      return rotate();
    case DW_OP_swap:
      if (stack_.size() < 2) return fail(TraceEnd::kUnsupported, "DWARF stack is too short");
      std::swap(stack_[stack_.size() - 1], stack_[stack_.size() - 2]);
      return true;
    case DW_OP_deref:
      return dereference(sizeof(uint64_t));
    case DW_OP_deref_size:
      return dereference(operation.number);
    case DW_OP_stack_value:
      kind_ = LocationKind::kValue;
      return true;
    default:
      return step_unary(operation);
  }
}

bool ExpressionEvaluator::step_unary(const Dwarf_Op& operation) {
  const uint8_t atom = operation.atom;
  const bool unary =
      atom == DW_OP_plus_uconst || atom == DW_OP_neg || atom == DW_OP_not || atom == DW_OP_abs;
  if (!unary) return step_binary(operation);
  const auto a = pop();
  if (!a) return false;
  switch (atom) {
    case DW_OP_plus_uconst:
      return push(*a + operation.number);
    case DW_OP_neg:
      return push(0 - *a);
    case DW_OP_not:
      return push(~*a);
    default:
      return push(as_signed(*a) < 0 ? 0 - *a : *a);
  }
}

bool ExpressionEvaluator::step_binary(const Dwarf_Op& operation) {
  const auto b = pop();
  const auto a = b ? pop() : std::nullopt;
  if (!a) return false;
  const auto result = compute(operation.atom, *a, *b);
  if (result) return push(*result);
  return fail(TraceEnd::kUnsupported,
              fmt::format("DWARF operation {:#x} is not supported or divides by zero",
                          unsigned{operation.atom}));
}

// Branches count bytes from the end of the operation (one byte and two of distance).
bool ExpressionEvaluator::jump(std::span<const Dwarf_Op> operations, const Dwarf_Op& from) {
  if (from.atom == DW_OP_bra) {
    const auto condition = pop();
    if (!condition) return false;
    if (*condition == 0) return true;
  }
  const uint64_t distance = static_cast<uint64_t>(int64_t{static_cast<int16_t>(from.number)});
  const uint64_t target = from.offset + 3 + distance;
  const auto found = std::ranges::find(operations, target, &Dwarf_Op::offset);
  if (found == operations.end()) {
    return fail(TraceEnd::kUnsupported, "DWARF expression jumps to nowhere");
  }
  next_ = static_cast<size_t>(found - operations.begin());
  return true;
}

bool ExpressionEvaluator::push(uint64_t value) {
  if (stack_.size() == kStackMax) return fail(TraceEnd::kUnsupported, "DWARF stack is too long");
  stack_.push_back(value);
  return true;
}

std::optional<uint64_t> ExpressionEvaluator::pop() {
  if (stack_.empty()) {
    fail(TraceEnd::kUnsupported, "DWARF stack is too short");
    return std::nullopt;
  }
  const uint64_t value = stack_.back();
  stack_.pop_back();
  return value;
}

bool ExpressionEvaluator::push_register(uint64_t number, uint64_t offset) {
  if (number >= kDwarfRegisterCount || !registers_.known[number]) {
    return fail(TraceEnd::kUnsupported,
                fmt::format("needs DWARF register {}, unknown here", number));
  }
  return push(registers_.value[number] + offset);
}

bool ExpressionEvaluator::pick(uint64_t depth) {
  if (depth >= stack_.size()) return fail(TraceEnd::kUnsupported, "DWARF stack is too short");
  return push(stack_[stack_.size() - 1 - depth]);
}

// The topmost entry becomes the third.
bool ExpressionEvaluator::rotate() {
  if (stack_.size() < 3) return fail(TraceEnd::kUnsupported, "DWARF stack is too short");
  std::rotate(stack_.end() - 3, stack_.end() - 1, stack_.end());
  return true;
}

bool ExpressionEvaluator::dereference(uint64_t size_bytes) {
  const auto address = pop();
  if (!address) return false;
  uint64_t value = 0;
  if (size_bytes == 0 || size_bytes > sizeof(value)) {
    return fail(TraceEnd::kUnsupported, fmt::format("DWARF read of {} bytes", size_bytes));
  }
  if (!read_(*address, &value, size_bytes)) {
    return fail(TraceEnd::kUnreadable, fmt::format("memory at {:#x} is not readable", *address));
  }
  return push(value);
}

bool ExpressionEvaluator::fail(TraceEnd end, std::string detail) {
  failure_ = {end, std::move(detail)};
  return false;
}

}  // namespace tally::elf
