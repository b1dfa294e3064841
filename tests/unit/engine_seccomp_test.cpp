// The prefix of seccomp filters, judged by an interpreter of the few instructions that filters
// have: calls of ours pass, all others are judged by the program's own filter.
#include "engine/seccomp.h"

#include <gtest/gtest.h>
#include <linux/seccomp.h>

#include <cstddef>
#include <cstring>

namespace {

using tally::engine::allow_calls_from;
using Filter = std::vector<sock_filter>;

constexpr uint32_t kAddressOffset = offsetof(seccomp_data, instruction_pointer);

// What the kernel would return; 1 for an instruction that is not known here.
uint32_t judge(const Filter& filter, const seccomp_data& data) {
  uint32_t a = 0;
  for (size_t pc = 0; pc < filter.size(); ++pc) {
    const sock_filter& insn = filter[pc];
    switch (insn.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        std::memcpy(&a, reinterpret_cast<const uint8_t*>(&data) + insn.k, sizeof a);
        break;
      case BPF_LD | BPF_IMM:
        a = insn.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        pc += a == insn.k ? insn.jt : insn.jf;
        break;
      case BPF_RET | BPF_K:
        return insn.k;
      case BPF_RET | BPF_A:
        return a;
      default:
        return 1;
    }
  }
  return 1;
}

// Allows the call with number 39 and kills for all others.
const Filter kOwn = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                     BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 39, 0, 1),
                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                     BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};

seccomp_data call(int number, uint64_t address) {
  seccomp_data data{};
  data.nr = number;
  data.instruction_pointer = address;
  return data;
}

TEST(Seccomp, CallsOfOursPassAndOthersAreJudged) {
  const std::vector<uint64_t> ours = {0x7f0012345678, 0x12345678, 0x7fff00000002};
  const auto filter = allow_calls_from(ours, kOwn);
  ASSERT_TRUE(filter.ok());
  for (const uint64_t address : ours) {
    EXPECT_EQ(judge(*filter, call(202, address)), SECCOMP_RET_ALLOW) << address;
  }
  // Addresses that share one half with one of ours, or lie beside it.
  for (const uint64_t address : {0x7f0112345678ull, 0x7f0012345679ull, 0x112345678ull, 0x0ull,
                                 0x7fff00000000ull, 0x2ull, 0x400000ull}) {
    EXPECT_EQ(judge(*filter, call(39, address)), SECCOMP_RET_ALLOW) << address;
    EXPECT_EQ(judge(*filter, call(202, address)), SECCOMP_RET_KILL_PROCESS) << address;
  }
}

TEST(Seccomp, TheAccumulatorIsZeroWhenTheProgramsFilterBegins) {
  const auto filter = allow_calls_from({0x1234}, {BPF_STMT(BPF_RET | BPF_A, 0)});
  ASSERT_TRUE(filter.ok());
  EXPECT_EQ(judge(*filter, call(5, 0x999900001235)), 0u);
}

TEST(Seccomp, FiltersThatLookAtTheAddressAreRefused) {
  for (const uint32_t offset : {kAddressOffset, kAddressOffset + 4}) {
    Filter own = kOwn;
    own.insert(own.begin(), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset));
    const auto filter = allow_calls_from({1}, own);
    ASSERT_FALSE(filter.ok());
    EXPECT_NE(filter.error().message.find("looks at the address"), std::string::npos);
  }
}

TEST(Seccomp, TooLongFiltersAreRefusedByTheirLength) {
  const std::vector<uint64_t> ours = {1, 2, 3};
  const auto prefix = allow_calls_from(ours, {});
  ASSERT_TRUE(prefix.ok());
  const size_t room = BPF_MAXINSNS - prefix->size();
  EXPECT_TRUE(allow_calls_from(ours, Filter(room, kOwn.back())).ok());
  const auto refused = allow_calls_from(ours, Filter(room + 1, kOwn.back()));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(std::to_string(room)), std::string::npos);
}

}  // namespace
