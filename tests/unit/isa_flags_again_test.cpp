// Status flags made again (isa/flags_again.h), executed in this very process: with them and
// without, flags and registers must be the same.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <initializer_list>
#include <random>
#include <vector>

#include "executable_memory.h"
#include "isa/assembler.h"
#include "isa/flags_again.h"

namespace tally::isa {
namespace {

using Bytes = std::vector<uint8_t>;

std::optional<FlagsAgain> again_of(const std::vector<Bytes>& insns) {
  std::vector<std::span<const uint8_t>> spans;
  for (const Bytes& insn : insns) spans.emplace_back(insn);
  return flags_again(spans);
}

struct State {
  std::array<uint64_t, 16> registers{};  // in encoding order; rsp is left alone
  uint64_t flags = 0;
  bool operator==(const State&) const = default;
};

constexpr unsigned kStackPointer = 4;
constexpr uint64_t kStatusFlags = 0x8d5;

// Code and a State, both where 32 bits reach them.
class Machine {
 public:
  bool ok() const { return memory_.ok(); }

  // The state behind `insns`; or, given `again`, behind it, all flags having been turned round.
  State run(const State& before, const std::vector<Bytes>& insns, const FlagsAgain* again) {
    auto* state = reinterpret_cast<State*>(memory_.at(0));
    *state = before;
    Assembler as = memory_.assembler(kCodeAt);
    // Behind the kept registers, which are not the same for each caller, two words to be loaded.
    static constexpr std::array<uint8_t, 14> kKept = {0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41,
                                                      0x56, 0x41, 0x57, 0x6a, 0x2a, 0x6a, 0x15};
    static constexpr std::array<uint8_t, 15> kGiven = {
        0x48, 0x83, 0xc4, 0x10, 0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c, 0x5d, 0x5b, 0xc3};
    as.bytes(kKept.data(), kKept.size());
    for (unsigned r = 0; r < 16; ++r) move(as, 0x8b, r);
    for (const Bytes& insn : insns) as.bytes(insn.data(), insn.size());
    if (again != nullptr) {
      turn_flags(as);
      as.bytes(again->code().data(), again->code().size());
    }
    as.u8(0x9c);                                                 // pushfq
    as.u8(0x8f), as.u8(0x04), as.u8(0x25), as.u32(low() + 128);  // pop [flags]
    for (unsigned r = 0; r < 16; ++r) move(as, 0x89, r);
    as.bytes(kGiven.data(), kGiven.size());
    reinterpret_cast<void (*)()>(memory_.at(kCodeAt))();
    State after = *state;
    after.flags &= kStatusFlags;
    return after;
  }

 private:
  uint32_t low() const { return static_cast<uint32_t>(memory_.address(0).value()); }
  // mov between a register and its place in the state
  void move(Assembler& as, uint8_t opcode, unsigned reg) const {
    if (reg == kStackPointer) return;
    as.u8(static_cast<uint8_t>(0x48 | (reg >= 8 ? 4 : 0)));
    as.u8(opcode);
    as.u8(static_cast<uint8_t>(0x04 | (reg & 7) << 3));
    as.u8(0x25);
    as.u32(low() + 8 * reg);
  }
  static void turn_flags(Assembler& as) {
    as.u8(0x9c);                                                               // pushfq
    as.u8(0x48), as.u8(0x81), as.u8(0x34), as.u8(0x24), as.u32(kStatusFlags);  // xor [rsp], flags
    as.u8(0x9d);                                                               // popfq
  }
  static constexpr size_t kCodeAt = 4096;
  Executable memory_;
};

class FlagsMadeAgain : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(machine_.ok()); }

  void expect_same(const std::vector<Bytes>& insns, const FlagsAgain& again) {
    for (int round = 0; round < 4; ++round) {
      State before;
      for (uint64_t& value : before.registers) value = random_() >> (random_() % 64);
      if (round == 0) before.registers.fill(random_());
      const State expected = machine_.run(before, insns, nullptr);
      ASSERT_EQ(machine_.run(before, insns, &again), expected)
          << testing::PrintToString(insns) << " by " << testing::PrintToString(again.bytes);
    }
  }

  Machine machine_;
  std::mt19937_64 random_{7};
};

// Every old arithmetic operation in every form, on all registers.
TEST_F(FlagsMadeAgain, ByEachOperationOnRegisters) {
  unsigned made = 0;
  for (unsigned operation = 0; operation < 8; ++operation) {
    for (unsigned form = 0; form < 4; ++form) {
      for (unsigned rex = 0x40; rex < 0x50; ++rex) {
        for (unsigned modrm = 0xc0; modrm < 0x100; ++modrm) {
          const Bytes insn = {static_cast<uint8_t>(rex),
                              static_cast<uint8_t>(operation << 3 | form),
                              static_cast<uint8_t>(modrm)};
          const auto again = again_of({insn});
          const bool reg_is_stack = (rex & 4) == 0 && (modrm >> 3 & 7) == kStackPointer;
          const bool rm_is_stack = (rex & 1) == 0 && (modrm & 7) == kStackPointer;
          if (form < 2 ? rm_is_stack : reg_is_stack) {
            ASSERT_FALSE(again) << testing::PrintToString(insn);
            continue;
          }
          if (!again) continue;
          ++made;
          expect_same({insn}, *again);
        }
      }
    }
  }
  EXPECT_GT(made, 15000u);  // all but adc, sbb, and what is added to itself
}

TEST_F(FlagsMadeAgain, ByEachOperationOnConstants) {
  unsigned made = 0;
  for (const bool rex : {false, true}) {
    for (const int opcode : {0x80, 0x81, 0x83, 0xa8, 0xa9, 0x84, 0x85, 0xf6, 0xf7, 0x04, 0x05,
                             0x0c, 0x0d, 0x24, 0x25, 0x2c, 0x2d, 0x34, 0x35, 0x3c, 0x3d}) {
      for (unsigned modrm = 0xc0; modrm < 0x100; ++modrm) {
        Bytes insn;
        if (rex) insn.push_back(0x49);
        insn.push_back(static_cast<uint8_t>(opcode));
        const bool has_modrm = opcode >= 0x80 && (opcode & 0xf8) != 0xa8;
        if (has_modrm) insn.push_back(static_cast<uint8_t>(modrm));
        const bool group = (opcode & 0xf6) == 0xf6;
        if (group && (modrm & 0x38) != 0) continue;  // other operations
        const bool is_byte = opcode == 0x83 || (opcode & 1) == 0;
        const bool constant = opcode != 0x84 && opcode != 0x85;
        for (unsigned i = 0; constant && i < (is_byte ? 1 : 4); ++i) {
          insn.push_back(static_cast<uint8_t>(random_()));
        }
        const auto again = again_of({insn});
        if (!again) continue;
        ++made;
        expect_same({insn}, *again);
      }
    }
  }
  EXPECT_GT(made, 1500u);
}

TEST_F(FlagsMadeAgain, BehindInstructionsThatLeaveThemAlone) {
  const Bytes add = {0x4c, 0x01, 0xd3};                    // add rbx, r10
  const Bytes lea = {0x48, 0x8d, 0x4b, 0x40};              // lea rcx, [rbx+64]
  const Bytes load = {0x48, 0x8b, 0x44, 0x24, 0x08};       // mov rax, [rsp+8]
  const Bytes or_memory = {0x40, 0x0a, 0x74, 0x24, 0x08};  // or sil, [rsp+8]
  const Bytes widen = {0x40, 0x0f, 0xb6, 0xc6};            // movzx eax, sil
  const auto behind_add = again_of({load, add, lea, load});
  ASSERT_TRUE(behind_add);
  EXPECT_EQ(behind_add->insn, 1u);
  expect_same({load, add, lea, load}, *behind_add);
  const auto behind_or = again_of({or_memory, widen});
  ASSERT_TRUE(behind_or);
  EXPECT_EQ(behind_or->insn, 0u);
  expect_same({or_memory, widen}, *behind_or);
}

TEST_F(FlagsMadeAgain, NotWhereTheyCannotBe) {
  const Bytes add = {0x4c, 0x01, 0xd3};              // add rbx, r10
  const Bytes move_sum = {0x48, 0x89, 0xc3};         // mov rbx, rax
  const Bytes pop_addend = {0x41, 0x5a};             // pop r10
  const Bytes exchange = {0x49, 0x87, 0xc2};         // xchg r10, rax
  const Bytes increment = {0x48, 0xff, 0xc1};        // inc rcx
  const Bytes shift = {0x48, 0xc1, 0xe3, 0x04};      // shl rbx, 4
  const Bytes shift_by_cl = {0x48, 0xd3, 0xe6};      // shl rsi, cl
  const Bytes compare_memory = {0x48, 0x3b, 0x06};   // cmp rax, [rsi]
  const Bytes add_memory = {0x48, 0x03, 0x06};       // add rax, [rsi]
  const Bytes store_sum = {0x48, 0x01, 0x06};        // add [rsi], rax
  const Bytes double_it = {0x48, 0x01, 0xc0};        // add rax, rax
  const Bytes short_add = {0x66, 0x01, 0xd8};        // add ax, bx
  const Bytes make_room = {0x48, 0x83, 0xec, 0x08};  // sub rsp, 8
  const Bytes with_carry = {0x48, 0x11, 0xd8};       // adc rax, rbx
  const Bytes and_second = {0x20, 0xdc};             // and ah, bl
  const Bytes locked = {0xf0, 0x48, 0x01, 0x06};     // lock add [rsi], rax
  const Bytes move = {0x48, 0x89, 0xc1};             // mov rcx, rax
  const Bytes no_code = {0x06};
  for (const std::vector<Bytes>& insns :
       std::initializer_list<std::vector<Bytes>>{{},
                                                 {move},
                                                 {add, move_sum},
                                                 {add, pop_addend},
                                                 {add, exchange},
                                                 {add, increment},
                                                 {add, shift},
                                                 {add, shift_by_cl},
                                                 {compare_memory},
                                                 {add_memory},
                                                 {store_sum},
                                                 {double_it},
                                                 {short_add},
                                                 {make_room},
                                                 {with_carry},
                                                 {and_second},
                                                 {locked},
                                                 {add, no_code}}) {
    EXPECT_FALSE(again_of(insns)) << testing::PrintToString(insns);
  }
  std::vector<Bytes> far = {add};
  far.resize(40, move);
  EXPECT_FALSE(again_of(far));
}

}  // namespace
}  // namespace tally::isa
