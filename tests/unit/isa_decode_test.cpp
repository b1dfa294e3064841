// The template cache in front of Zydis must never change what Zydis says: every instruction of
// libc and of cc1's start, and seeded random bytes, decoded both ways.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "isa/insn.h"

namespace tally::isa {
namespace {

void expect_same(std::span<const uint8_t> bytes, uint64_t address) {
  const Insn slow = decode_uncached(bytes, address);
  const Insn fast = decode(bytes, address);
  ASSERT_EQ(slow, fast) << "at " << std::hex << address << ": " << format(bytes, address)
                        << " bytes " << int(bytes[0]) << " " << int(bytes[1]) << " "
                        << int(bytes[2]) << " " << int(bytes[3]);
}

TEST(Decode, CachedEqualsUncachedOnRealCode) {
  for (const char* path : {"/lib/x86_64-linux-gnu/libc.so.6", "/proc/self/exe"}) {
    std::ifstream file(path, std::ios::binary);
    std::vector<char> data((std::istreambuf_iterator<char>(file)), {});
    ASSERT_GT(data.size(), 100000u) << path;
    const auto* p = reinterpret_cast<const uint8_t*>(data.data());
    // Headers and data decode as nonsense, which is welcome here.
    for (size_t offset = 0; offset + 32 < data.size();) {
      expect_same({p + offset, data.size() - offset}, offset);
      if (HasFatalFailure()) return;
      const Insn insn = decode({p + offset, data.size() - offset}, offset);
      offset += insn.size ? insn.size : 1;
    }
  }
}

TEST(Decode, CachedEqualsUncachedOnRandomBytes) {
  const unsigned seed = 999;
  std::mt19937 random(seed);
  for (int i = 0; i < 2000000; ++i) {
    uint8_t bytes[32];
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
    if (i % 3 == 0) bytes[0] = static_cast<uint8_t>(0x40 | (bytes[0] & 15));
    if (i % 7 == 0) bytes[1] = 0x0f;
    expect_same(bytes, 0x400000);
    if (HasFatalFailure()) FAIL() << "seed " << seed << " iteration " << i;
  }
}

TEST(Decode, Flows) {
  auto flow = [](std::vector<uint8_t> bytes) {
    bytes.resize(32);
    return decode(bytes, 0x1000).flow;
  };
  EXPECT_EQ(flow({0xe8, 0, 0, 0, 0}), Flow::kCall);
  EXPECT_EQ(flow({0xeb, 0xfe}), Flow::kJump);
  EXPECT_EQ(flow({0x74, 0x10}), Flow::kConditional);
  EXPECT_EQ(flow({0xe3, 0x10}), Flow::kCountedJump);
  EXPECT_EQ(flow({0xff, 0xe0}), Flow::kIndirectJump);
  EXPECT_EQ(flow({0xff, 0xd0}), Flow::kIndirectCall);
  EXPECT_EQ(flow({0xf2, 0xff, 0x25, 0, 0, 0, 0}), Flow::kIndirectJump);
  EXPECT_EQ(flow({0xc3}), Flow::kReturn);
  EXPECT_EQ(flow({0xf3, 0xc3}), Flow::kReturn);
  EXPECT_EQ(flow({0x0f, 0x05}), Flow::kSystemCall);
  EXPECT_EQ(flow({0x0f, 0x0b}), Flow::kTrap);
  EXPECT_EQ(flow({0xcd, 0x80}), Flow::kUnsupported);
  EXPECT_EQ(flow({0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0}), Flow::kUnsupported);
  EXPECT_EQ(flow({0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0}), Flow::kNone);
}

TEST(Decode, StackPointerLoads) {
  auto loads = [](std::vector<uint8_t> bytes) {
    bytes.resize(32);
    return decode(bytes, 0x1000).loads_stack_pointer;
  };
  EXPECT_TRUE(loads({0x4c, 0x89, 0xc4}));                  // mov rsp, r8
  EXPECT_TRUE(loads({0x48, 0x89, 0xcc}));                  // mov rsp, rcx
  EXPECT_TRUE(loads({0x48, 0x8b, 0xa2, 0xa0, 0, 0, 0}));   // mov rsp, [rdx+0xa0]
  EXPECT_TRUE(loads({0x48, 0x87, 0xe6}));                  // xchg rsi, rsp
  EXPECT_TRUE(loads({0x48, 0x87, 0x27}));                  // xchg [rdi], rsp
  EXPECT_FALSE(loads({0x4c, 0x87, 0x27}));                 // xchg [rdi], r12
  EXPECT_FALSE(loads({0x48, 0x89, 0xec}));                 // mov rsp, rbp
  EXPECT_FALSE(loads({0x48, 0x89, 0xe5}));                 // mov rbp, rsp
  EXPECT_FALSE(loads({0x4c, 0x8b, 0xa2, 0xa0, 0, 0, 0}));  // mov r12, [rdx+0xa0]
}

}  // namespace
}  // namespace tally::isa
