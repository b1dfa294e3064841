// Returns that look their landing up, executed in this very process: what is there is gone to, by a
// jump or by a `ret`, all else is asked for, and nobody sees that it was looked up.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "cache/hashed_landings.h"
#include "gateway_in_process.h"

namespace tally::translate {
namespace {

constexpr size_t kLandingCode = 0x9000;
constexpr size_t kLandingBytes = 64, kLandings = 64;
constexpr uint64_t kAsked = 0xff;

enum class Way : uint8_t {
  kLookup,  // with its target in the thread's block
  kPopped,  // ... below the stack pointer
  kPop,     // ... on the stack
};
constexpr Way kWays[] = {Way::kLookup, Way::kPopped, Way::kPop};

class Lookups : public GatewayInProcess {
 protected:
  void SetUp() override {
    GatewayInProcess::SetUp();
    if (HasFatalFailure()) return;
    isa::Assembler asked = code_.assembler(kAskingCode);
    emit_leave(asked, kAsked);
    divert(gateway_.entries.ret);
    for (size_t i = 0; i < kLandings; ++i) {
      isa::Assembler landing = code_.assembler(kLandingCode + i * kLandingBytes);
      emit_leave(landing, i);
    }
    for (const Way way : kWays) emit_way(way);
    hashed_.begin(tables_.begin());
    block_.put(tcb::kLookupsLeft, kLookupsLeft);
    block_.put(tcb::kDirectLeft, kLookupsLeft);
  }

  static size_t entry_of(Way way) { return static_cast<size_t>(way) * 256; }
  // rdi: the return address; rsi: the flags.
  void emit_way(Way way) {
    isa::Assembler as = code_.assembler(entry_of(way));
    if (way != Way::kLookup) raw(as, 0x57);  // push rdi
    raw(as, 0x56);                           // push rsi
    raw(as, 0xb8), as.u32(kRaxInside);       // mov eax
    raw(as, 0xba), as.u32(kRdxInside);       // mov edx
    raw(as, 0x9d);                           // popfq
    if (way == Way::kPopped) as.lea_rsp_rsp(8);
    const Gateways& entries = gateway_.entries;
    const CacheAddr to = way == Way::kLookup   ? entries.lookup
                         : way == Way::kPopped ? entries.ret_popped
                                               : entries.ret_pop;
    as.jmp(to.value());
  }
  // Keeps what the registers are, and returns flags << 8 | `where`.
  static void emit_leave(isa::Assembler& as, uint64_t where) {
    as.mov_gs_reg(tcb::kCall, 0);
    as.mov_gs_reg(tcb::kCall + 8, 2);
    raw(as, 0x9c, 0x58);              // pushfq; pop rax
    raw(as, 0x48, 0xc1, 0xe0, 0x08);  // shl rax, 8
    raw(as, 0xb0, where, 0xc3);       // mov al, where; ret
  }

  CacheAddr landing(size_t i) const { return code_.address(kLandingCode + i * kLandingBytes); }
  // `notes`: whether the thread's block has the target then.
  uint64_t go(Way way, uint64_t target, bool notes = true) {
    using Entry = uint64_t (*)(uint64_t target, uint64_t flags);
    const auto entry = reinterpret_cast<Entry>(code_.at(entry_of(way)));
    uint64_t where = UINT64_MAX;
    for (const uint64_t flags : {uint64_t{0}, kStatusFlags, uint64_t{0x800}, uint64_t{0xd5}}) {
      block_.put(tcb::kTarget, way == Way::kLookup ? target : ~target);
      block_.put(tcb::kSpillRcx, kRcxInside);
      const uint64_t result = entry(target, flags | kFlagsAlwaysSet);
      EXPECT_EQ((result >> 8) & kStatusFlags, flags);
      EXPECT_EQ(block_.get(tcb::kCall), kRaxInside);
      EXPECT_EQ(block_.get(tcb::kCall + 8), kRdxInside);
      EXPECT_EQ(block_.get(tcb::kSpillRcx), kRcxInside);
      EXPECT_EQ(block_.get(tcb::kTarget), notes ? target : ~target);
      EXPECT_TRUE(where == UINT64_MAX || where == (result & 0xff));
      where = result & 0xff;
    }
    return where;
  }
  uint32_t left() const { return static_cast<uint32_t>(block_.get(tcb::kLookupsLeft)); }

  static constexpr uint32_t kLookupsLeft = 1u << 30;
  engine::HashedLandings hashed_;
};

TEST_F(Lookups, FindWhatIsThereAndAskForAllElse) {
  constexpr uint64_t kTarget = 0x7f12'3456'7890;
  for (const Way way : kWays) EXPECT_EQ(go(way, kTarget), kAsked);
  ASSERT_TRUE(hashed_.add(kTarget, landing(5), engine::Moves::kAlone));
  for (const Way way : kWays) {
    EXPECT_EQ(go(way, kTarget), 5u);
    for (int bit = 0; bit < 64; ++bit) EXPECT_EQ(go(way, kTarget ^ 1ull << bit), kAsked);
    EXPECT_EQ(go(way, 0), kAsked);
  }
  hashed_.remove(kTarget);
  for (const Way way : kWays) EXPECT_EQ(go(way, kTarget), kAsked);
  ASSERT_TRUE(hashed_.add(kTarget, landing(6), engine::Moves::kAlone));
  for (const Way way : kWays) EXPECT_EQ(go(way, kTarget), 6u);
  hashed_.hold();
  for (const Way way : kWays) EXPECT_EQ(go(way, kTarget), kAsked);
  hashed_.release();
  for (const Way way : kWays) EXPECT_EQ(go(way, kTarget), 6u);
}

TEST_F(Lookups, OneOfManyAsks) {
  constexpr uint64_t kTarget = 0x401234;
  ASSERT_TRUE(hashed_.add(kTarget, landing(1), engine::Moves::kAlone));
  block_.put(tcb::kLookupsLeft, 9);
  EXPECT_EQ(go(Way::kLookup, kTarget + 4), kAsked);  // what is not found does not count
  EXPECT_EQ(left(), 9u);
  EXPECT_EQ(go(Way::kLookup, kTarget), 1u);
  EXPECT_EQ(go(Way::kPop, kTarget), 1u);
  EXPECT_EQ(left(), 1u);
  block_.put(tcb::kLookupsLeft, 1);
  using Entry = uint64_t (*)(uint64_t target, uint64_t flags);
  const auto entry = reinterpret_cast<Entry>(code_.at(entry_of(Way::kPop)));
  EXPECT_EQ(entry(kTarget, kFlagsAlwaysSet) & 0xff, kAsked);
  EXPECT_EQ(left(), 0u);
}

// Through all sizes of the table that some thousand landings need.
TEST_F(Lookups, FindThemAllAsTheyBecomeMore) {
  std::mt19937 random(11);
  std::map<uint64_t, size_t> led;
  for (size_t round = 0; round < 6000; ++round) {
    const uint64_t target = 0x400000 + random() % 0x20000;
    const size_t to = random() % kLandings;
    if (led.contains(target) && round % 3 == 0) {
      hashed_.remove(target);
      led.erase(target);
    } else if (!led.contains(target)) {
      ASSERT_TRUE(hashed_.add(target, landing(to), engine::Moves::kAlone));
      led[target] = to;
    }
    for (const uint64_t at : {target, target + 1, uint64_t{0x400000 + random() % 0x20000}}) {
      const auto known = led.find(at);
      ASSERT_EQ(go(kWays[round % 3], at), known == led.end() ? kAsked : known->second);
    }
    ASSERT_EQ(hashed_.size(), led.size());
  }
  for (uint64_t at = 0x400000; at < 0x420000; ++at) {
    const auto known = led.find(at);
    ASSERT_EQ(hashed_.has(at), known != led.end());
  }
}

// Through all sizes of the table: what has an entry there is not looked up.
TEST_F(Lookups, SomeAreFoundByTheLowBitsOfTheirAddress) {
  constexpr Way kOfReturns[] = {Way::kPopped, Way::kPop};
  engine::DirectLandings& direct = hashed_.direct();
  direct.begin(tables_.begin(), gateway_);
  std::mt19937_64 random(7);
  std::map<uint64_t, size_t> led;
  size_t refused = 0, asked = 0;
  for (size_t round = 0; round < 12'000; ++round) {
    // Some are alike in many bits, and some lie so close that they get in each other's way.
    const uint64_t target = 0x7f00'0000'0000 + (random() % 0x4'0000) * (round % 2 == 0 ? 1 : 0x101);
    const size_t to = random() % kLandings;
    if (!led.contains(target)) {
      ASSERT_TRUE(hashed_.add(target, landing(to), engine::Moves::kAlone));
      led[target] = to;
    } else if (round % 3 == 0) {
      hashed_.remove(target);
      led.erase(target);
    }
    if (led.contains(target) && !hashed_.add_directly(target, SIZE_MAX)) ++refused;
    const Way way = kOfReturns[round % 2];
    for (const uint64_t at : {target, target ^ 0x1'0000'0000, target + 1,
                              uint64_t{0x7f00'0000'0000} + random() % 0x8'0000}) {
      const auto known = led.find(at);
      const uint32_t before = left();
      const bool there = known != led.end() && direct.has(at);
      // Whole addresses are not compared: nobody returns where only the upper half differs.
      if (known == led.end() && direct.has(target) && at == (target ^ 0x1'0000'0000)) continue;
      ASSERT_EQ(go(way, at, !there), known == led.end() ? kAsked : known->second) << std::hex << at;
      // Of one that was removed, the hash table still has the address.
      if (known != led.end()) {
        ASSERT_EQ(left() == before, there);
      }
      asked += known == led.end() ? 1 : 0;
    }
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(asked, 1000u);
  EXPECT_GT(direct.size(), 4096u);  // that is the largest
  hashed_.hold();
  EXPECT_EQ(go(Way::kPop, led.begin()->first), kAsked);
  hashed_.release();
  size_t found = 0;
  for (const auto& [at, to] : led) {
    ASSERT_EQ(go(Way::kPop, at, !direct.has(at)), to);
    found += direct.has(at) ? 1 : 0;
  }
  EXPECT_GT(found, led.size() / 2);
  direct.end();
  for (const auto& [at, to] : led) ASSERT_EQ(go(Way::kPopped, at), to);
}

TEST_F(Lookups, OneOfManyThatAreFoundAsks) {
  constexpr uint64_t kTarget = 0x40'1234;
  hashed_.direct().begin(tables_.begin(), gateway_);
  ASSERT_TRUE(hashed_.add(kTarget, landing(3), engine::Moves::kAlone));
  ASSERT_TRUE(hashed_.add_directly(kTarget, SIZE_MAX));
  for (const Way way : {Way::kPopped, Way::kPop}) {
    block_.put(tcb::kDirectLeft, 5);
    EXPECT_EQ(go(way, kTarget, false), 3u);
    EXPECT_EQ(static_cast<uint32_t>(block_.get(tcb::kDirectLeft)), 1u);
    using Entry = uint64_t (*)(uint64_t target, uint64_t flags);
    const auto entry = reinterpret_cast<Entry>(code_.at(entry_of(way)));
    EXPECT_EQ(entry(kTarget, kFlagsAlwaysSet) & 0xff, kAsked);
    EXPECT_EQ(block_.get(tcb::kTarget), kTarget);
    EXPECT_EQ(block_.get(tcb::kCall), kRaxInside);
    EXPECT_EQ(block_.get(tcb::kCall + 8), kRdxInside);
  }
  EXPECT_EQ(left(), kLookupsLeft);
}

}  // namespace
}  // namespace tally::translate
