// Static checks, one fault at a time, on code made for it: what each kind of finding looks like.
#include <gtest/gtest.h>

#include <cstdlib>

#include "claims/check.h"
#include "elf/image.h"
#include "profile_sample.h"

namespace tally::claims {
namespace {

// Addresses, for the tests below; `skip` holds an instruction within another.
const char* const kSource = R"(
  .globl _start
_start:
  mov $3, %ecx
again:
  dec %ecx
  jnz again
  call leaf
after:
  mov $60, %eax
  syscall
leaf:
  movabs $0x9090909090909090, %rax
  ret
)";

class CheckClaims : public testing::Test {
 protected:
  void SetUp() override {
    profile::write_whole(folder_.file("x.s"), kSource);
    const std::string command = "gcc -nostdlib -static -o " + folder_.file("x") + " " +
                                folder_.file("x.s") + " && nm " + folder_.file("x") + " > " +
                                folder_.file("names");
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::ifstream names(folder_.file("names"));
    std::string address;
    std::string type;
    std::string name;
    while (names >> address >> type >> name) symbols_[name] = std::stoull(address, nullptr, 16);
    claims_.modules = {{.path = folder_.file("x"), .build_id = "", .main_program = true}};
    // _start 1, again 3 (twice round), leaf 1, after 1
    claims_.procedures = {{.entry = at("_start"), .name = "_start", .count = 1, .record = 1},
                          {.entry = at("leaf"), .name = "leaf", .count = 1, .record = 2}};
    block("_start", at("again").address - at("_start").address, 1, 0);
    block("again", 4, 3, 0);
    block("call", at("after").address - at("again").address - 4, 1, 0);
    block("after", at("leaf").address - at("after").address, 1, 0);
    block("leaf", 11, 1, 1);
    claims_.blocks.back().returns = true;
    edge("_start", "again", 1, EdgeRole::kFallthrough);
    edge("again", "again", 2, EdgeRole::kBranch);
    edge("again", "call", 1, EdgeRole::kFallthrough);
    edge("call", "leaf", 1, EdgeRole::kCall);
    edge("call", "after", 1, EdgeRole::kCallReturn);
    claims_.abnormal = {{.block = at("_start"), .entered = 1}, {.block = at("after"), .left = 1}};
  }

  Place at(const std::string& name) {
    if (name == "call") return {0, LinkAddr(symbols_["again"] + 4)};
    EXPECT_TRUE(symbols_.contains(name)) << name;
    return {0, LinkAddr(symbols_[name])};
  }
  void block(const std::string& name, int64_t size_bytes, uint64_t count, uint32_t procedure) {
    claims_.blocks.push_back({.begin = at(name),
                              .size_bytes = static_cast<uint64_t>(size_bytes),
                              .count = count,
                              .record = claims_.blocks.size() + 1,
                              .procedure = procedure});
  }
  void edge(const std::string& from, const std::string& to, uint64_t count, EdgeRole role) {
    claims_.edges.push_back({.from = at(from),
                             .to = at(to),
                             .count = count,
                             .record = claims_.edges.size() + 1,
                             .origin = EdgeOrigin::kBlockBegin,
                             .role = role});
  }
  void expect(FaultKind kind, const Place& place) {
    const CheckReport report = check(claims_);
    bool found = false;
    std::string all;
    for (const Finding& finding : report.findings) {
      found = found || (finding.kind == kind && finding.place == place);
      all += fmt::format("{} {}: {}\n", to_string(finding.kind), finding.where, finding.message);
    }
    EXPECT_TRUE(found) << "no " << to_string(kind) << " at " << std::hex << place.address.value()
                       << " among\n"
                       << all;
  }

  profile::TemporaryFolder folder_;
  std::map<std::string, uint64_t> symbols_;
  Claims claims_;
};

TEST_F(CheckClaims, NothingInACorrectProfile) {
  const CheckReport report = check(claims_);
  for (const Finding& finding : report.findings) ADD_FAILURE() << finding.message;
  EXPECT_EQ(report.findings_total, 0u);
  EXPECT_EQ(report.open, 0u);
  ASSERT_EQ(report.known.size(), 1u);
  EXPECT_EQ(report.known[0].known_bytes, report.known[0].code_bytes);
}

TEST_F(CheckClaims, ImpossibleCount) {
  claims_.edges[1].count = static_cast<uint64_t>(-5);
  expect(FaultKind::kImpossible, at("again"));
}

TEST_F(CheckClaims, BlockThatEndsInsideAnInstruction) {
  claims_.blocks[4].size_bytes = 5;
  expect(FaultKind::kBadBlock, at("leaf"));
}

TEST_F(CheckClaims, BlockWithABranchInItsMiddle) {
  claims_.blocks[0].size_bytes += 5;
  expect(FaultKind::kBadBlock, at("_start"));
}

TEST_F(CheckClaims, BlockThatEndsBeforeItBegins) {
  claims_.blocks[4].size_bytes = static_cast<uint64_t>(-1);
  expect(FaultKind::kBadBlock, at("leaf"));
}

TEST_F(CheckClaims, EdgeToElsewhere) {
  edge("again", "leaf", 1, EdgeRole::kBranch);
  expect(FaultKind::kWrongTarget, at("again"));
}

TEST_F(CheckClaims, EdgeFromNoBranch) {
  edge("_start", "leaf", 1, EdgeRole::kBranch);
  expect(FaultKind::kNotABranch, at("_start"));
  claims_.edges.pop_back();
  edge("leaf", "after", 1, EdgeRole::kBranch);  // it returns there, but no edge says so
  expect(FaultKind::kNotABranch, at("leaf"));
}

TEST_F(CheckClaims, InsideAnInstruction) {
  const Place inside{0, at("leaf").address + 4};
  claims_.edges.push_back({.from = at("leaf"),
                           .to = inside,
                           .count = 1,
                           .origin = EdgeOrigin::kBlockBegin,
                           .role = EdgeRole::kBranch});
  expect(FaultKind::kInsideInstruction, inside);
}

TEST_F(CheckClaims, NotCode) {
  const Place outside{0, LinkAddr(0x10)};
  claims_.procedures.push_back({.entry = outside, .name = "nowhere", .count = 3});
  expect(FaultKind::kNotCode, outside);
}

TEST_F(CheckClaims, RecursionAndEntriesAreCompared) {
  claims_.procedures[1].count = 2;
  expect(FaultKind::kEntries, at("leaf"));
}

TEST_F(CheckClaims, TotalsThatDoNotAddUp) {
  claims_.sums = {{.what = "a", .place = "x", .claimed = 3, .sum = 4}};
  EXPECT_EQ(check(claims_).by_kind[static_cast<size_t>(FaultKind::kTotal)], 1u);
  claims_.sums[0].sum = 3 + (uint64_t{1} << 32);
  EXPECT_EQ(check(claims_).by_kind[static_cast<size_t>(FaultKind::kOverflow32)], 1u);
}

TEST_F(CheckClaims, WhatIsUnknownIsOpenAndNoFinding) {
  claims_.edges.erase(claims_.edges.begin() + 2);
  claims_.blocks[1].unsure = claims_.blocks[2].unsure = true;
  const CheckReport report = check(claims_);
  EXPECT_EQ(report.findings_total, 0u);
  EXPECT_EQ(report.open, 2u);
}

}  // namespace
}  // namespace tally::claims
