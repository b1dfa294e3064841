// Visits of indirect branches that a thread makes by itself, executed in this very process: what is
// known is gone to and noted down, all else is asked for, and nobody sees that it was looked up.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cache/hashed_landings.h"
#include "cache/known_targets.h"
#include "gateway_in_process.h"

namespace tally::translate {
namespace {

constexpr uint64_t kSite = 4711;
constexpr size_t kKnownCode = 0x9000;
constexpr uint32_t kReturnAddress = 0x2468;  // of the calls that are looked up
enum Where : uint8_t { kThere = 1, kAsked = 2 };

class Visits : public GatewayInProcess {
 protected:
  void SetUp() override {
    GatewayInProcess::SetUp();
    if (HasFatalFailure()) return;
    // Whoever asks comes back at once.
    isa::Assembler asked = code_.assembler(kAskingCode);
    asked.mov_rcx_gs(tcb::kSpillRcx);
    emit_leave(asked, kAsked);
    divert(gateway_.entries.indirect);
    isa::Assembler there = code_.assembler(kKnownCode);
    emit_leave(there, kThere);
    // The entries: as a miss stub comes to them, behind a call with its return address on the
    // stack.
    emit_way(0, gateway_.entries.visit);
    emit_way(256, gateway_.entries.visit_by_call);
    known_.begin(tables_.begin(), 0);
    engine::HashedLandings().begin(tables_.begin());
  }

  void emit_way(size_t at, CacheAddr entry) {
    isa::Assembler as = code_.assembler(at);
    raw(as, 0x68), as.u32(kReturnAddress);  // push
    raw(as, 0xb8), as.u32(kRaxInside);      // mov eax
    raw(as, 0xba), as.u32(kRdxInside);      // mov edx
    raw(as, 0x56, 0x9d);                    // push rsi; popfq
    as.jmp(entry.value());
  }
  // Keeps what the registers are, and returns flags << 8 | `where`.
  static void emit_leave(isa::Assembler& as, Where where) {
    as.mov_gs_reg(tcb::kCall, 0);
    as.mov_gs_reg(tcb::kCall + 8, 1);
    as.mov_gs_reg(tcb::kCall + 16, 2);
    as.lea_rsp_rsp(8);                // the return address
    raw(as, 0x9c, 0x58);              // pushfq; pop rax
    raw(as, 0x48, 0xc1, 0xe0, 0x08);  // shl rax, 8
    raw(as, 0xb0, where, 0xc3);       // mov al, where; ret
  }

  uint32_t notes() const { return static_cast<uint32_t>(block_.get(tcb::kNoteCount)); }
  void has_landing() {
    const uint16_t number = 0x0101;
    std::memcpy(tables_.begin() + tables::kLandingNumbers + kReturnAddress, &number, 2);
  }

  Where go(bool call, uint64_t target) {
    using Entry = uint64_t (*)(uint64_t, uint64_t flags);
    const auto entry = reinterpret_cast<Entry>(code_.at(call ? 256 : 0));
    uint8_t where = 0;
    for (const uint64_t flags : {uint64_t{0}, kStatusFlags, uint64_t{0x800}, uint64_t{0xd5}}) {
      const uint32_t before = notes();
      block_.put(tcb::kTarget, target);
      block_.put(tcb::kArgument, kSite);
      block_.put(tcb::kSpillRcx, kRcxInside);
      const uint64_t result = entry(0, flags | kFlagsAlwaysSet);
      EXPECT_EQ((result >> 8) & kStatusFlags, flags);
      EXPECT_EQ(block_.get(tcb::kCall), kRaxInside);
      EXPECT_EQ(block_.get(tcb::kCall + 8), kRcxInside);
      EXPECT_EQ(block_.get(tcb::kCall + 16), kRdxInside);
      const auto now = static_cast<uint8_t>(result);
      EXPECT_TRUE(where == 0 || where == now);
      where = now;
      EXPECT_EQ(notes(), before + (where == kThere ? 1 : 0));
      if (where == kThere) {
        const uint32_t note = tcb::kNotes + before * tcb::kNoteBytes;
        EXPECT_EQ(block_.get(note), code_.address(kKnownCode).value());
        EXPECT_EQ(block_.get(note + 8), kSite);
      }
    }
    return static_cast<Where>(where);
  }

  engine::KnownTargets known_;
  const TargetAddr target_{0x7f12'3456'7890};
};

TEST_F(Visits, WhatIsKnownIsGoneToAndNoted) {
  EXPECT_EQ(go(false, target_.value()), kAsked);
  known_.add(target_, {3, 0, 0}, code_.address(kKnownCode));
  EXPECT_EQ(go(false, target_.value()), kThere);
  // Nothing else that stands at the same place, and not what is alike in its low half.
  for (int bit = 0; bit < 64; ++bit) EXPECT_EQ(go(false, target_.value() ^ 1ull << bit), kAsked);
  EXPECT_EQ(go(false, 0), kAsked);
  known_.forget_if(
      [&](TargetAddr target, engine::BlockRef to) { return target == target_ && to.unit == 3; });
  EXPECT_EQ(go(false, target_.value()), kAsked);
}

TEST_F(Visits, ACallNeedsALandingFirst) {
  known_.add(target_, {}, code_.address(kKnownCode));
  EXPECT_EQ(go(true, target_.value()), kAsked);
  has_landing();
  EXPECT_EQ(go(true, target_.value()), kThere);
}

TEST_F(Visits, ALandingMayBeAmongTheHashedOnes) {
  known_.add(target_, {}, code_.address(kKnownCode));
  engine::HashedLandings hashed;
  hashed.begin(tables_.begin());
  ASSERT_TRUE(hashed.add(kReturnAddress + 1, code_.address(kKnownCode), engine::Moves::kAlone));
  EXPECT_EQ(go(true, target_.value()), kAsked);
  ASSERT_TRUE(hashed.add(kReturnAddress, code_.address(kKnownCode), engine::Moves::kAlone));
  EXPECT_EQ(go(true, target_.value()), kThere);
}

TEST_F(Visits, WhoHasNoRoomToNoteAsks) {
  known_.add(target_, {}, code_.address(kKnownCode));
  while (notes() + 4 <= tcb::kNotesMax) EXPECT_EQ(go(false, target_.value()), kThere);
  ASSERT_EQ(notes(), tcb::kNotesMax);
  EXPECT_EQ(go(false, target_.value()), kAsked);
  block_.put(tcb::kNoteCount, 0);
  EXPECT_EQ(go(false, target_.value()), kThere);
}

TEST_F(Visits, PlacesBelongToTheirFirstTargets) {
  std::vector<uint64_t> alike;  // of all bits of the hash but those that count
  for (uint64_t other = target_.value(); alike.size() < 3; ++other) {
    if (known_hash(other) >> 24 == known_hash(target_.value()) >> 24) alike.push_back(other);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    known_.add(TargetAddr(alike[i]), {i, 0, 0}, code_.address(kKnownCode));
  }
  EXPECT_EQ(go(false, alike[0]), kThere);
  EXPECT_EQ(go(false, alike[1]), kThere);
  EXPECT_EQ(go(false, alike[2]), kAsked);
  // They may lead elsewhere, be forgotten, and known again.
  block_.put(tcb::kNoteCount, 0);
  known_.move([](engine::BlockRef to) { return engine::BlockRef{to.unit == 0 ? 7 : to.unit}; },
              [&](engine::BlockRef to) { return CacheAddr(to.unit == 7 ? 0 : 1); });
  EXPECT_EQ(go(false, alike[0]), kAsked);
  EXPECT_EQ(go(false, alike[1]), kThere);
  known_.add(TargetAddr(alike[0]), {7, 0, 0}, code_.address(kKnownCode));
  EXPECT_EQ(go(false, alike[0]), kThere);
}

}  // namespace
}  // namespace tally::translate
