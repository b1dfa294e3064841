// Claim: the expression evaluator computes what DWARF says and stops at everything else, by name.
#include <dwarf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "elf/dwarf_expression.h"

namespace tally::elf {
namespace {

using Operations = std::vector<Dwarf_Op>;

Dwarf_Op op(int atom, uint64_t number = 0, uint64_t number2 = 0, uint64_t offset = 0) {
  return {static_cast<uint8_t>(atom), number, number2, offset};
}

class UnwindExpression : public testing::Test {
 protected:
  UnwindExpression() {
    registers_.value[kDwarfRsp] = 0x1000;
    registers_.value[kDwarfPc] = 0x40b;
    registers_.known[kDwarfRsp] = registers_.known[kDwarfPc] = true;
  }

  std::optional<Location> evaluate(const Operations& operations) {
    ExpressionEvaluator evaluator(registers_, cfa_, read_);
    const auto result = evaluator.evaluate(operations);
    failure_ = evaluator.failure();
    return result;
  }
  void expect_value(const Operations& operations, uint64_t expected) {
    const auto result = evaluate(operations);
    ASSERT_TRUE(result) << failure_.detail;
    EXPECT_EQ(result->value, expected);
  }
  void expect_failure(const Operations& operations, TraceEnd end = TraceEnd::kUnsupported) {
    EXPECT_FALSE(evaluate(operations));
    EXPECT_EQ(failure_.end, end);
    EXPECT_FALSE(failure_.detail.empty());
  }

  UnwindRegisters registers_;
  std::optional<uint64_t> cfa_ = 0x2000;
  ExpressionEvaluator::ReadWord read_ = [](uint64_t address, void* bytes, size_t size_bytes) {
    if (address >= 0x8000) return false;
    const uint64_t value = 0x1111222233334444;
    std::memcpy(bytes, &value, size_bytes);
    return true;
  };
  UnwindFailure failure_;
};

TEST_F(UnwindExpression, ProcedureLinkageTable) {
  const Operations cfa = {op(DW_OP_breg7, 8), op(DW_OP_breg16), op(DW_OP_lit15),
                          op(DW_OP_and),      op(DW_OP_lit11),  op(DW_OP_ge),
                          op(DW_OP_lit3),     op(DW_OP_shl),    op(DW_OP_plus)};
  expect_value(cfa, 0x1010);
  registers_.value[kDwarfPc] = 0x40a;
  expect_value(cfa, 0x1008);
}

TEST_F(UnwindExpression, Arithmetic) {
  const auto binary = [&](int atom, uint64_t a, uint64_t b, uint64_t expected) {
    SCOPED_TRACE(atom);
    expect_value({op(DW_OP_constu, a), op(DW_OP_constu, b), op(atom)}, expected);
  };
  const uint64_t minus_one = ~uint64_t{0};
  binary(DW_OP_minus, 3, 5, minus_one - 1);
  binary(DW_OP_or, 5, 3, 7);
  binary(DW_OP_xor, 5, 3, 6);
  binary(DW_OP_mul, 5, 3, 15);
  binary(DW_OP_div, minus_one - 5, 2, minus_one - 2);  // signed
  binary(DW_OP_div, uint64_t{1} << 63, minus_one, uint64_t{1} << 63);
  binary(DW_OP_mod, 7, 4, 3);
  binary(DW_OP_shl, 1, 64, 0);
  binary(DW_OP_shr, minus_one, 63, 1);
  binary(DW_OP_shr, minus_one, 64, 0);
  binary(DW_OP_shra, minus_one, 200, minus_one);
  binary(DW_OP_lt, minus_one, 0, 1);  // signed
  binary(DW_OP_gt, minus_one, 0, 0);
  binary(DW_OP_le, 4, 4, 1);
  binary(DW_OP_eq, 4, 4, 1);
  binary(DW_OP_ne, 4, 4, 0);
  expect_value({op(DW_OP_const1s, minus_one), op(DW_OP_neg)}, 1);
  expect_value({op(DW_OP_const1s, minus_one), op(DW_OP_abs)}, 1);
  expect_value({op(DW_OP_lit0), op(DW_OP_not)}, minus_one);
  expect_value({op(DW_OP_lit5), op(DW_OP_plus_uconst, 7)}, 12);
}

TEST_F(UnwindExpression, Stack) {
  const Operations three = {op(DW_OP_lit1), op(DW_OP_lit2), op(DW_OP_lit3)};
  const auto then = [&](std::initializer_list<Dwarf_Op> more) {
    Operations all = three;
    all.insert(all.end(), more);
    return all;
  };
  expect_value(then({op(DW_OP_drop)}), 2);
  expect_value(then({op(DW_OP_over)}), 2);
  expect_value(then({op(DW_OP_swap)}), 2);
  expect_value(then({op(DW_OP_dup), op(DW_OP_plus)}), 6);
  expect_value(then({op(DW_OP_pick, 2)}), 1);
  expect_value(then({op(DW_OP_rot)}), 2);                  // 3 1 2
  expect_value(then({op(DW_OP_rot), op(DW_OP_drop)}), 1);  // 3 1
  expect_value(then({op(DW_OP_nop)}), 3);
}

TEST_F(UnwindExpression, MemoryRegistersAndKinds) {
  expect_value({op(DW_OP_breg7, 0), op(DW_OP_deref)}, 0x1111222233334444);
  expect_value({op(DW_OP_breg7, 0), op(DW_OP_deref_size, 2)}, 0x4444);
  expect_value({op(DW_OP_bregx, 7, static_cast<uint64_t>(-8))}, 0xff8);
  expect_value({op(DW_OP_call_frame_cfa), op(DW_OP_plus_uconst, static_cast<uint64_t>(-16))},
               0x1ff0);
  EXPECT_EQ(evaluate({op(DW_OP_lit1)})->kind, LocationKind::kMemory);
  EXPECT_EQ(evaluate({op(DW_OP_lit1), op(DW_OP_stack_value)})->kind, LocationKind::kValue);
  EXPECT_EQ(evaluate({op(DW_OP_reg7)})->kind, LocationKind::kValue);
  expect_value({op(DW_OP_regx, 7)}, 0x1000);
}

TEST_F(UnwindExpression, Branches) {
  // Offsets as in the encoded bytes: lit0 at 0, bra at 1..3, lit1 at 4, skip at 5..7, lit2 at 8.
  expect_value({op(DW_OP_lit1, 0, 0, 0), op(DW_OP_bra, 4, 0, 1), op(DW_OP_lit1, 0, 0, 4),
                op(DW_OP_skip, 1, 0, 5), op(DW_OP_lit2, 0, 0, 8), op(DW_OP_nop, 0, 0, 9)},
               2);
  expect_failure({op(DW_OP_lit1, 0, 0, 0), op(DW_OP_skip, static_cast<uint64_t>(-3), 0, 1)});
  expect_failure({op(DW_OP_skip, 100, 0, 0)});
}

TEST_F(UnwindExpression, FailuresAreNamed) {
  expect_failure({});
  expect_failure({op(DW_OP_plus)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_plus)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_swap)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_rot)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_pick, 9)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_lit0), op(DW_OP_div)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_lit0), op(DW_OP_mod)});
  expect_failure({op(DW_OP_breg3)});                           // unknown register
  expect_failure({op(DW_OP_bregx, 1000)});                     // no such register
  expect_failure({op(DW_OP_breg7), op(DW_OP_deref_size, 9)});  // too wide
  expect_failure({op(DW_OP_addr, 1)});
  expect_failure({op(DW_OP_fbreg, 1)});
  expect_failure({op(0xff)});
  expect_failure({op(DW_OP_lit1), op(DW_OP_stack_value), op(DW_OP_lit1)});
  expect_failure({op(DW_OP_constu, 0x8000), op(DW_OP_deref)}, TraceEnd::kUnreadable);
  expect_failure(Operations(65, op(DW_OP_lit1)));
  cfa_.reset();
  expect_failure({op(DW_OP_call_frame_cfa)});
}

}  // namespace
}  // namespace tally::elf
