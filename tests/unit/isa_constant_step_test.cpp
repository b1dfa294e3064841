// Which instructions move a register by a constant, and which write it at all.
#include "isa/constant_step.h"

#include <gtest/gtest.h>

#include <vector>

namespace tally::isa {
namespace {

using Bytes = std::vector<uint8_t>;
constexpr uint32_t kRax = 1, kRcx = 2, kRdx = 4, kRbx = 8, kRsi = 64, kRdi = 128, kR12 = 1 << 12;

struct Case {
  Bytes bytes;
  uint8_t reg;
  int64_t step;
};

TEST(ConstantStep, IsWhatIsAddedToAllOfARegister) {
  const std::vector<Case> cases = {
      {{0x48, 0xff, 0xc3}, 3, 1},                                    // inc rbx
      {{0x49, 0xff, 0xcc}, 12, -1},                                  // dec r12
      {{0x48, 0x83, 0xc0, 0x08}, 0, 8},                              // add rax, 8
      {{0x48, 0x83, 0xc0, 0xf8}, 0, -8},                             // add rax, -8
      {{0x48, 0x05, 0x00, 0x00, 0x00, 0x80}, 0, -2147483648},        // add rax, -2^31
      {{0x49, 0x81, 0xef, 0x00, 0x00, 0x00, 0x80}, 15, 2147483648},  // sub r15, -2^31
      {{0x48, 0x83, 0xee, 0x01}, 6, -1},                             // sub rsi, 1
      {{0x48, 0x8d, 0x5b, 0xff}, 3, -1},                             // lea rbx, [rbx - 1]
      {{0x4d, 0x8d, 0xa4, 0x24, 0x18, 0x00, 0x00, 0x00}, 12, 24},    // lea r12, [r12 + 24]
  };
  for (const Case& one : cases) {
    const auto found = constant_step(one.bytes);
    ASSERT_TRUE(found) << int{one.bytes[0]} << " " << int{one.bytes[1]};
    EXPECT_EQ(found->reg, one.reg);
    EXPECT_EQ(found->step, one.step);
  }
}

TEST(ConstantStep, IsNothingElse) {
  const std::vector<Bytes> none = {
      {0xff, 0xc3},                                // inc ebx: what is carried out is lost
      {0x83, 0xc0, 0x08},                          // add eax, 8
      {0x66, 0x83, 0xc0, 0x08},                    // add ax, 8
      {0x04, 0x08},                                // add al, 8
      {0x67, 0x48, 0x8d, 0x5b, 0xff},              // lea rbx, [ebx - 1]
      {0x48, 0x8d, 0x58, 0xff},                    // lea rbx, [rax - 1]
      {0x48, 0x8d, 0x5c, 0x03, 0xff},              // lea rbx, [rbx + rax - 1]
      {0x48, 0x8d, 0x1d, 1, 0, 0, 0},              // lea rbx, [rip + 1]
      {0x48, 0x8d, 0x1b},                          // lea rbx, [rbx]
      {0x48, 0x83, 0xc0, 0x00},                    // add rax, 0
      {0x48, 0x83, 0x00, 0x08},                    // add qword [rax], 8
      {0x48, 0xff, 0x03},                          // inc qword [rbx]
      {0x48, 0x01, 0xd8},                          // add rax, rbx
      {0x48, 0x83, 0xd0, 0x01},                    // adc rax, 1
      {0x48, 0xc7, 0xc0, 0x01, 0x00, 0x00, 0x00},  // mov rax, 1
      {0x50},                                      // push rax
      {0x06},                                      // no instruction
      {0x48},                                      // too few bytes
      {},
  };
  for (const Bytes& bytes : none) {
    EXPECT_FALSE(constant_step(bytes)) << (bytes.empty() ? 0 : int{bytes[0]});
  }
}

TEST(RegistersWritten, HasPartsAndWhatIsImplied) {
  const std::vector<std::pair<Bytes, uint32_t>> cases = {
      {{0x48, 0x89, 0xd8}, kRax},                    // mov rax, rbx
      {{0xb4, 0x01}, kRax},                          // mov ah, 1
      {{0x66, 0xbb, 0x01, 0x00}, kRbx},              // mov bx, 1
      {{0x48, 0x89, 0x18}, 0},                       // mov [rax], rbx
      {{0x48, 0x39, 0xd8}, 0},                       // cmp rax, rbx
      {{0x48, 0xf7, 0xe3}, kRax | kRdx},             // mul rbx
      {{0x48, 0x87, 0xd8}, kRax | kRbx},             // xchg rax, rbx
      {{0x48, 0x0f, 0xb1, 0x0b}, kRax},              // cmpxchg [rbx], rcx
      {{0x48, 0x0f, 0xc7, 0x0b}, kRax | kRdx},       // cmpxchg16b [rbx]
      {{0xa4}, kRsi | kRdi},                         // movsb
      {{0xf3, 0xa4}, kRsi | kRdi | kRcx},            // rep movsb
      {{0xac}, kRax | kRsi},                         // lodsb
      {{0xaa}, kRdi},                                // stosb
      {{0xd7}, kRax},                                // xlat
      {{0x0f, 0xa2}, kRax | kRbx | kRcx | kRdx},     // cpuid
      {{0x0f, 0x31}, kRax | kRdx},                   // rdtsc
      {{0x0f, 0x94, 0xc3}, kRbx},                    // setz bl
      {{0x48, 0x0f, 0x44, 0xd8}, kRbx},              // cmovz rbx, rax
      {{0x4d, 0x8d, 0x64, 0x24, 0x18}, kR12},        // lea r12, [r12 + 24]
      {{0x66, 0x48, 0x0f, 0x7e, 0xc3}, kRbx},        // movq rbx, xmm0
      {{0x66, 0x0f, 0xd7, 0xd8}, kRbx},              // pmovmskb ebx, xmm0
      {{0x66, 0x0f, 0x3a, 0x63, 0xc1, 0x0c}, kRcx},  // pcmpistri xmm0, xmm1, 12
  };
  for (const auto& [bytes, wanted] : cases) {
    const auto written = registers_written(bytes);
    ASSERT_TRUE(written) << int{bytes[0]};
    EXPECT_EQ(*written & wanted, wanted) << int{bytes[0]} << " " << *written;
    EXPECT_EQ(*written & ~wanted, 0u) << int{bytes[0]} << " " << *written;
  }
  EXPECT_FALSE(registers_written(Bytes{0x06}));
  EXPECT_FALSE(registers_written(Bytes{}));
}

}  // namespace
}  // namespace tally::isa
