// The small pieces of generated code, executed in this very process: the hash dispatch, the
// comparison with an original address, counters and pair stubs.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

#include "executable_memory.h"
#include "isa/insn.h"
#include "thread_block.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::translate {
namespace {

// Called with (rcx, flags): loads both and goes on behind itself.
void emit_enter(isa::Assembler& as) {
  raw(as, 0x48, 0x89, 0xf9);  // mov rcx, rdi
  raw(as, 0x56, 0x9d);        // push rsi; popfq
}

// Returns to the caller the flags of here << 8 | `number`.
void emit_leave(isa::Assembler& as, uint8_t number) {
  raw(as, 0x9c, 0x58);              // pushfq; pop rax
  raw(as, 0x48, 0xc1, 0xe0, 0x08);  // shl rax, 8
  raw(as, 0xb0, number);            // mov al, number
  raw(as, 0xc3);                    // ret
}

using Entry = uint64_t (*)(uint64_t rcx, uint64_t flags);

Entry entry_at(const Executable& code, size_t offset) {
  return reinterpret_cast<Entry>(code.at(offset));
}

uint64_t status_of(uint64_t result) {
  return (result >> 8) & kStatusFlags;
}

// A mask of isa::flag as bits of the flags register.
uint64_t in_rflags(uint8_t mask) {
  uint64_t result = 0;
  if (mask & isa::flag::kCarry) result |= 0x1;
  if (mask & isa::flag::kParity) result |= 0x4;
  if (mask & isa::flag::kAdjust) result |= 0x10;
  if (mask & isa::flag::kZero) result |= 0x40;
  if (mask & isa::flag::kSign) result |= 0x80;
  if (mask & isa::flag::kOverflow) result |= 0x800;
  return result;
}

// ---- hash dispatch
// -------------------------------------------------------------------------------

class HashDispatch : public testing::TestWithParam<HashKind> {};

TEST_P(HashDispatch, GoesWhereHashOfSaysAndKeepsTheFlags) {
  const Executable code;
  ASSERT_TRUE(code.ok());
  constexpr size_t kTable = 0x1000;
  constexpr size_t kLeaves = 0x2000;
  isa::Assembler leaves = code.assembler(kLeaves);
  for (unsigned i = 0; i < 256; ++i) {
    const uint64_t leaf = leaves.here().value();
    std::memcpy(code.at(kTable + 8 * i), &leaf, sizeof leaf);
    emit_leave(leaves, static_cast<uint8_t>(i));
  }
  isa::Assembler as = code.assembler(0);
  emit_enter(as);
  emit_hash_dispatch(as, GetParam(), static_cast<uint32_t>(code.address(kTable).value()));
  ASSERT_FALSE(as.overflowed() || leaves.overflowed());
  std::mt19937_64 random(5);
  for (int round = 0; round < 20000; ++round) {
    const uint64_t original = random() >> (random() % 64);
    const uint64_t flags = random() & kStatusFlags;
    const uint64_t result = entry_at(code, 0)(original, flags | kFlagsAlwaysSet);
    ASSERT_EQ(static_cast<uint8_t>(result), hash_of(GetParam(), original)) << std::hex << original;
    ASSERT_EQ(status_of(result), flags);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, HashDispatch,
                         testing::Values(HashKind::kBits8to15, HashKind::kBits5to12,
                                         HashKind::kBits4to11, HashKind::kBits0to7));

// ---- pair stubs, counters, comparisons
// -----------------------------------------------------------

class Pieces : public testing::TestWithParam<uint8_t> {
 protected:
  void SetUp() override { ASSERT_TRUE(code_.ok() && block_.ok()); }

  Executable code_;
  ThreadBlock block_;
};

constexpr uint8_t kHit = 1;
constexpr uint8_t kMiss = 2;
constexpr size_t kHitAt = 0x1000;
constexpr size_t kMissAt = 0x1100;

TEST_P(Pieces, AStubTakesItsOwnTargetOnlyAndCountsIt) {
  const uint8_t live = GetParam();
  isa::Assembler hit = code_.assembler(kHitAt);
  hit.mov_gs_rcx(tcb::kArgument);
  emit_leave(hit, kHit);
  isa::Assembler miss = code_.assembler(kMissAt);
  emit_leave(miss, kMiss);
  const uint32_t counter = 7;
  uint64_t count = 0;
  // All 64 bits count: targets that differ in one bit, high or low, are others.
  for (uint64_t original : {0x401000ull, 0x7fff12345678ull, 0xffffffff80000000ull, 0ull}) {
    isa::Assembler as = code_.assembler(0);
    emit_enter(as);
    const Stub stub = emit_stub(as, original, counter, live, code_.address(kHitAt),
                                code_.address(kMissAt), Compare::kAll64);
    ASSERT_LE(stub.mismatch_field.value() & 7, 4u) << "cannot be patched while threads run";
    ASSERT_TRUE(stub.entry < stub.accept && stub.accept < stub.counted &&
                stub.counted < stub.mismatch_field && stub.mismatch_field + 4 == stub.end);
    for (int bit = -1; bit < 64; ++bit) {
      for (uint64_t flags : {uint64_t{0}, kStatusFlags}) {
        const uint64_t other = bit < 0 ? 0 : 1ull << bit;
        block_.put(tcb::kTarget, original ^ other);
        block_.put(tcb::kSpillRcx, 0x1122334455667788);
        const uint64_t result = entry_at(code_, 0)(~original, flags | kFlagsAlwaysSet);
        ASSERT_EQ(static_cast<uint8_t>(result), bit < 0 ? kHit : kMiss) << "bit " << bit;
        // On a hit those flags that its target looks at; on a miss all, for who knows what the
        // next in the chain looks at (stubs that keep nothing stand at a chain's end).
        const uint64_t kept = bit < 0 ? in_rflags(live) : live != 0 ? kStatusFlags : 0;
        ASSERT_EQ(status_of(result) & kept, flags & kept) << "bit " << bit;
        if (bit < 0) {
          ASSERT_EQ(block_.get(tcb::kArgument), 0x1122334455667788u) << "rcx is not the program's";
          ++count;
        }
        ASSERT_EQ(block_.get(counter_offset(counter)), count);
      }
    }
  }
}

// Chains are led on by patching one field of each stub, in both forms of comparison.
TEST_P(Pieces, AStubIsLedOnToAnother) {
  const uint8_t live = GetParam();
  constexpr size_t kFirst = 0x100, kSecond = 0x203;  // pieces begin anywhere
  constexpr uint64_t kTargets[] = {0x7f0012345678, 0x7f0012345679};
  isa::Assembler hit = code_.assembler(kHitAt);
  emit_leave(hit, kHit);
  isa::Assembler miss = code_.assembler(kMissAt);
  emit_leave(miss, kMiss);
  for (const Compare compare : {Compare::kLow32, Compare::kAll64}) {
    isa::Assembler enter = code_.assembler(0);
    emit_enter(enter);
    enter.jmp(code_.address(kFirst).value());
    Stub stubs[2];
    for (size_t i = 0; i < 2; ++i) {
      isa::Assembler as = code_.assembler(i == 0 ? kFirst : kSecond);
      stubs[i] = emit_stub(as, kTargets[i], static_cast<uint32_t>(i), live, code_.address(kHitAt),
                           code_.address(kMissAt), compare);
      ASSERT_LE(stubs[i].mismatch_field.value() & 7, 4u);
      ASSERT_LE(stubs[i].mismatch, stubs[i].end);
    }
    const auto go = [&](uint64_t target) {
      block_.put(tcb::kTarget, target);
      return static_cast<uint8_t>(entry_at(code_, 0)(target, kFlagsAlwaysSet));
    };
    const auto count = [&](uint32_t i) { return block_.get(counter_offset(i)); };
    for (uint32_t i = 0; i < 2; ++i) block_.put(counter_offset(i), 0);
    EXPECT_EQ(go(kTargets[0]), kHit);
    EXPECT_EQ(go(kTargets[1]), kMiss);
    const CacheAddr field = stubs[0].mismatch_field;
    isa::Assembler patch(code_.at(0) + (field - code_.address(0)), 4, field);
    patch.patch_rel32(0, stubs[1].entry.value());
    EXPECT_EQ(go(kTargets[1]), kHit);
    EXPECT_EQ(go(kTargets[1] + 1), kMiss);
    EXPECT_EQ(go(kTargets[0]), kHit);
    EXPECT_EQ(count(0), 2u);
    EXPECT_EQ(count(1), 1u);
  }
}

// A stub that keeps nothing is led on by the jump of its comparison, wherever it begins.
TEST_P(Pieces, AStubThatKeepsNothingIsLedOnByItsComparison) {
  const CacheAddr miss = code_.address(kMissAt), hit = code_.address(kHitAt);
  for (size_t begin = 0x100; begin < 0x110; ++begin) {
    isa::Assembler as = code_.assembler(begin);
    const Stub stub = emit_unspilled_stub(as, 0x7f0012345678, 7, GetParam(), hit, miss, {});
    EXPECT_TRUE(isa::Assembler::may_be_patched(stub.mismatch_field.value()));
    EXPECT_EQ(stub.mismatch_field + 4, stub.accept);
    EXPECT_EQ(stub.mismatch, stub.end);
    int32_t distance = 0;
    std::memcpy(&distance, code_.at(0) + (stub.mismatch_field - code_.address(0)), 4);
    EXPECT_EQ(stub.accept + static_cast<uint64_t>(int64_t{distance}), miss);
  }
}

TEST(Filling, TakesFewInstructionsThatDoNothing) {
  for (unsigned size_bytes = 0; size_bytes <= 40; ++size_bytes) {
    std::array<uint8_t, 40> memory{};
    isa::Assembler as(memory.data(), memory.size(), CacheAddr(0x1000));
    as.fill(size_bytes);
    ASSERT_EQ(as.offset(), size_bytes);
    unsigned instructions = 0;
    for (unsigned at = 0; at < size_bytes; ++instructions) {
      const isa::Insn insn = isa::decode(std::span(memory).subspan(at), 0x1000 + at);
      ASSERT_TRUE(insn.size > 0 && insn.flow == isa::Flow::kNone && insn.flags_written == 0);
      at += insn.size;
      ASSERT_LE(at, size_bytes);
    }
    EXPECT_EQ(instructions, (size_bytes + 7) / 8);
  }
}

// In front of its target, a stub of each kind goes there without a jump.
TEST_P(Pieces, AStubFallsIntoItsTarget) {
  const uint8_t live = GetParam();
  constexpr uint64_t kTarget = 0x7f0012345678, kRcx = 0x1122334455667788;
  constexpr uint8_t kTail[] = {0x48, 0x89, 0xc8};  // mov rax, rcx
  const CacheAddr miss_at = code_.address(kMissAt);
  isa::Assembler miss = code_.assembler(kMissAt);
  emit_leave(miss, kMiss);
  enum Kind { kPair, kUnspilled, kSealed, kIndexed };
  for (const Kind kind : {kPair, kUnspilled, kSealed, kIndexed}) {
    isa::Assembler enter = code_.assembler(0);
    emit_enter(enter);
    const size_t begin = 0x100, mismatch_begin = 0x300;
    isa::Assembler as = code_.assembler(begin);
    isa::Assembler apart = code_.assembler(mismatch_begin);
    const CacheAddr nowhere;
    CacheAddr entry, end;
    if (kind == kIndexed) {
      const CacheRange mismatch = emit_index_mismatch(apart, miss_at, {});
      const IndexedStub stub = emit_indexed_front(as, kTail, kTarget, 7, live, mismatch, {});
      entry = stub.entry, end = stub.end;
      EXPECT_TRUE(stub.entry < stub.compares && stub.compares < stub.counted);
      EXPECT_TRUE(stub.is_mismatch(mismatch.begin) && !stub.is_mismatch(stub.entry));
      EXPECT_TRUE(!stub.is_counted_at(stub.compares) && !stub.is_counted_at(mismatch.begin));
    } else {
      const Stub stub =
          kind == kPair
              ? emit_stub(as, kTarget, 7, live, nowhere, miss_at, Compare::kLow32, {}, Ends::kFalls)
          : kind == kUnspilled
              ? emit_unspilled_stub(as, kTarget, 7, live, nowhere, miss_at, {}, {}, Ends::kFalls)
              : emit_sealed_stub(as, 7, live, nowhere, miss_at, {}, Ends::kFalls);
      entry = stub.entry, end = stub.end;
      EXPECT_TRUE(isa::Assembler::may_be_patched(stub.mismatch_field.value()));
      EXPECT_EQ(stub.mismatch, stub.end) << "something lies between stub and target";
    }
    EXPECT_EQ(end, as.here());
    as.mov_gs_rcx(tcb::kArgument);
    emit_leave(as, kHit);
    enter.jmp(entry.value());
    for (const uint64_t target : {kTarget, kTarget + 1}) {
      block_.put(counter_offset(7), 41);
      block_.put(tcb::kTarget, target);
      block_.put(tcb::kSpillRcx, kRcx);
      // The tail goes where rcx says.
      const uint64_t rcx = kind == kIndexed ? target : kRcx;
      const uint64_t result = entry_at(code_, 0)(rcx, kFlagsAlwaysSet | kStatusFlags);
      const bool hits = target == kTarget || kind == kSealed;
      ASSERT_EQ(static_cast<uint8_t>(result), hits ? kHit : kMiss) << kind;
      EXPECT_EQ(block_.get(counter_offset(7)), hits ? 42u : 41u) << kind;
      if (!hits) continue;
      EXPECT_EQ(block_.get(tcb::kArgument), rcx) << "rcx was changed, " << kind;
      // The others have nothing here that would make the flags again.
      const bool keeps_flags = kind == kPair || kind == kSealed;
      const uint64_t kept = keeps_flags ? in_rflags(live) : 0;
      EXPECT_EQ(status_of(result) & kept, kStatusFlags & kept) << kind;
    }
  }
}

TEST_P(Pieces, ACounterCountsToTheLastBitAndKeepsLiveFlags) {
  const uint8_t live = GetParam();
  isa::Assembler as = code_.assembler(0);
  emit_enter(as);
  emit_counter(as, 3, live);
  as.mov_gs_rcx(tcb::kArgument);
  emit_leave(as, kHit);
  for (uint64_t start : {uint64_t{0}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
    for (uint64_t flags : {uint64_t{0}, kStatusFlags, uint64_t{1}}) {
      block_.put(counter_offset(3), start);
      const uint64_t result = entry_at(code_, 0)(0x123456789abc, flags | kFlagsAlwaysSet);
      EXPECT_EQ(block_.get(counter_offset(3)), start + 1);
      EXPECT_EQ(block_.get(tcb::kArgument), 0x123456789abcu) << "rcx was changed";
      EXPECT_EQ(status_of(result) & in_rflags(live), flags & in_rflags(live));
    }
  }
}

// rcx is what the counter goes through where flags are live; rdi and rsi have what the test gives.
TEST_P(Pieces, WhatARegisterHasIsTakenAndGiven) {
  const uint8_t live = GetParam();
  constexpr uint8_t kRsi = 6, kRdi = 7;
  for (const uint8_t reg : {kRsi, kRdi}) {
    for (const Crossing crossing : {Crossing::kEnters, Crossing::kLeaves}) {
      isa::Assembler as = code_.assembler(0);
      emit_enter(as);
      const uint32_t done = emit_crossing(as, crossing, 3, reg, live);
      EXPECT_LE(done, as.offset());
      as.mov_gs_rcx(tcb::kArgument);
      emit_leave(as, kHit);
      for (uint64_t start : {uint64_t{0}, uint64_t{0xffffffff}, ~uint64_t{0}}) {
        for (uint64_t flags : {uint64_t{0}, kStatusFlags, uint64_t{1}}) {
          const uint64_t rdi = 0x923456789abcdef1, rsi = flags | kFlagsAlwaysSet;
          block_.put(counter_offset(3), start);
          const uint64_t result = entry_at(code_, 0)(rdi, rsi);
          const uint64_t had = reg == kRsi ? rsi : rdi;
          const uint64_t expected = crossing == Crossing::kEnters ? start - had : start + had;
          EXPECT_EQ(block_.get(counter_offset(3)), expected);
          EXPECT_EQ(block_.get(tcb::kArgument), rdi) << "rcx was changed";
          EXPECT_EQ(status_of(result) & in_rflags(live), flags & in_rflags(live));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Live, Pieces,
                         testing::Values(0, isa::flag::kCarry, isa::flag::kZero, isa::flag::kAll));

}  // namespace
}  // namespace tally::translate
