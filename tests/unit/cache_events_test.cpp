// Which returns pop what their own block has put there, on hand-assembled procedures.
#include "cache/events.h"

#include <gtest/gtest.h>

#include "hand_assembled.h"

namespace tally::engine {
namespace {

class CacheEvents : public HandAssembled {
 protected:
  std::vector<WantedEvent> events(std::vector<uint8_t> code) {
    discover(std::move(code));
    std::vector<LinkRange> sources;
    return find_events(procedure_, view_, sources);
  }
};

TEST_F(CacheEvents, AChangedReturnAddressIsLookedAtBeforeAndAfter) {
  // add qword [rsp], 3; ret
  const auto found = events({0x48, 0x83, 0x04, 0x24, 0x03, 0xc3});
  const std::vector<WantedEvent> wanted = {{EventKind::kReturnSlot, 0, 0, 0, 0},
                                           {EventKind::kReturnChanged, 1, 0, 1, 0}};
  EXPECT_EQ(found, wanted);
}

TEST_F(CacheEvents, TheSlotIsFollowedThroughWhatMovesTheStackPointer) {
  // sub rsp, 24; mov [rsp+24], rax; push rbx; pop rcx; lea rsp, [rsp+8]; add rsp, 16; ret
  const auto found = events({0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x44, 0x24, 0x18, 0x53, 0x59,
                             0x48, 0x8d, 0x64, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x10, 0xc3});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, EventKind::kReturnSlot);
  EXPECT_EQ(found[0].slot_bytes, 0);
  EXPECT_EQ(found[1].insn, 6u);
}

TEST_F(CacheEvents, TheSlotMayLieAboveWhereTheBlockBegins) {
  // jz 3; nop; 3: mov [rsp+8], rax; pop rbx; ret
  const auto found = events({0x74, 0x01, 0x90, 0x48, 0x89, 0x44, 0x24, 0x08, 0x5b, 0xc3});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, EventKind::kReturnSlot);
  EXPECT_EQ(found[0].insn, 2u);
  EXPECT_EQ(found[0].slot_bytes, 8);
}

TEST_F(CacheEvents, WhatIsPoppedAndPushedIsTheReturnAddress) {
  // pop rcx; lea rcx, [rcx+3]; push rcx; ret
  const auto found = events({0x59, 0x48, 0x8d, 0x49, 0x03, 0x51, 0xc3});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].kind, EventKind::kReturnSlot);
  EXPECT_EQ(found[0].slot_bytes, 0);
}

TEST_F(CacheEvents, WhatIsPushedAloneIsAJump) {
  // push rax; ret, and: push r8; ret
  for (const auto& code : {std::vector<uint8_t>{0x50, 0xc3}, {0x41, 0x50, 0xc3}}) {
    const std::vector<WantedEvent> wanted = {{EventKind::kJumpByReturn, 1, 0, 1, 0}};
    EXPECT_EQ(events(code), wanted);
  }
}

TEST_F(CacheEvents, OrdinaryReturnsNeedNone) {
  // push rbx; sub rsp, 16; mov [rsp+8], rax; mov rcx, [rsp+24]; cmp [rsp+24], rcx; add rsp, 16;
  // pop rbx; ret
  EXPECT_TRUE(events({0x53, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x44, 0x24, 0x08, 0x48, 0x8b, 0x4c,
                      0x24, 0x18, 0x48, 0x39, 0x4c, 0x24, 0x18, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3})
                  .empty());
  // mov [rsp+8], rax (an argument); ret, and: leave; ret behind a push
  EXPECT_TRUE(events({0x48, 0x89, 0x44, 0x24, 0x08, 0xc3}).empty());
  EXPECT_TRUE(events({0x50, 0xc9, 0xc3}).empty());
}

TEST_F(CacheEvents, FlagsOnTheStackAreFollowed) {
  // add qword [rsp], 3; push rax; popfq; pushfq; pop rcx; ret
  const auto found = events({0x48, 0x83, 0x04, 0x24, 0x03, 0x50, 0x9d, 0x9c, 0x59, 0xc3});
  const std::vector<WantedEvent> wanted = {{EventKind::kReturnSlot, 0, 0, 0, 0},
                                           {EventKind::kReturnChanged, 5, 0, 5, 0}};
  EXPECT_EQ(found, wanted);
}

TEST_F(CacheEvents, WhatIsPushedForAnotherThanTheReturnIsNotPoppedByIt) {
  // push rax; popfq; ret
  EXPECT_TRUE(events({0x50, 0x9d, 0xc3}).empty());
  // push rax; enter 8, 0; leave; ret, and: push rax; pop fs; ret
  EXPECT_TRUE(events({0x50, 0xc8, 0x08, 0x00, 0x00, 0xc9, 0xc3}).empty());
  EXPECT_TRUE(events({0x50, 0x0f, 0xa1, 0xc3}).empty());
  // push rax; pop rsp; ret, and: push rax; and rsp, -16; ret
  EXPECT_TRUE(events({0x50, 0x5c, 0xc3}).empty());
  EXPECT_TRUE(events({0x50, 0x48, 0x83, 0xe4, 0xf0, 0xc3}).empty());
}

TEST_F(CacheEvents, BehindAFramesEndTheSlotIsFollowedToThere) {
  // push rbp; leave; push r13; ret
  const std::vector<WantedEvent> jump = {{EventKind::kJumpByReturn, 3, 0, 3, 0}};
  EXPECT_EQ(events({0x55, 0xc9, 0x41, 0x55, 0xc3}), jump);
  // leave; pop rbx; add qword [rsp], 3; ret
  const std::vector<WantedEvent> changed = {{EventKind::kReturnSlot, 1, 0, 1, 8},
                                            {EventKind::kReturnChanged, 3, 0, 3, 0}};
  EXPECT_EQ(events({0xc9, 0x5b, 0x48, 0x83, 0x04, 0x24, 0x03, 0xc3}), changed);
}

TEST_F(CacheEvents, WhereAStackPointerIsComputedTheReturnAddressMayBeMovedAlong) {
  // pop r10; lea rsp, [rsp+rdi*8]; push r10; ret
  EXPECT_TRUE(events({0x41, 0x5a, 0x48, 0x8d, 0x24, 0xfc, 0x41, 0x52, 0xc3}).empty());
}

TEST_F(CacheEvents, AReturnByJumpHasPoppedItsSlot) {
  // add qword [rsp], 3; pop rcx; jmp rcx
  const std::vector<WantedEvent> changed = {{EventKind::kReturnSlot, 0, 0, 0, 0},
                                            {EventKind::kReturnChanged, 2, 0, 2, kPoppedSlotBytes}};
  EXPECT_EQ(events({0x48, 0x83, 0x04, 0x24, 0x03, 0x59, 0xff, 0xe1}), changed);
  // pop rbx; pop rcx; lfence; jmp rcx
  EXPECT_TRUE(events({0x5b, 0x59, 0x0f, 0xae, 0xe8, 0xff, 0xe1}).empty());
}

TEST_F(CacheEvents, ACallThatIsAnsweredByAJumpNeedsNone) {
  // call 9; 5: pause; jmp 5; 9: mov [rsp], rax; ret
  EXPECT_TRUE(
      events({0xe8, 0x04, 0x00, 0x00, 0x00, 0xf3, 0x90, 0xeb, 0xfc, 0x48, 0x89, 0x04, 0x24, 0xc3})
          .empty());
}

}  // namespace
}  // namespace tally::engine
