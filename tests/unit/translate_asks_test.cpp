// A page of asks, executed in this very process at several places: each place is told by its
// address, from the first instruction to the gateway's entry, and no register or flag is changed
// that is not put down.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "gateway_in_process.h"

namespace tally::translate {
namespace {

constexpr size_t kEntryCode = 0x9000;
constexpr uint32_t kPages = 3;

class Asks : public GatewayInProcess {
 protected:
  void SetUp() override {
    GatewayInProcess::SetUp();
    if (HasFatalFailure()) return;
    const int file = memfd_create("asks", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    ASSERT_EQ(ftruncate(file, asks::kPageBytes), 0);
    void* place =
        mmap(nullptr, kPages * asks::kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    place_ = static_cast<uint8_t*>(place);
    // Written where it is mapped first, as the monitor does.
    std::vector<uint8_t> page(asks::kPageBytes);
    isa::Assembler as(page.data(), page.size(), CacheAddr());
    emit_asks(as, tables_.base());
    ASSERT_FALSE(as.overflowed());
    ASSERT_EQ(as.offset(), asks::kPageBytes);
    ASSERT_EQ(pwrite(file, page.data(), page.size(), 0), asks::kPageBytes);
    for (uint32_t i = 0; i < kPages; ++i) {
      ASSERT_NE(mmap(place_ + i * asks::kPageBytes, asks::kPageBytes, PROT_READ | PROT_EXEC,
                     MAP_SHARED | MAP_FIXED, file, 0),
                MAP_FAILED);
    }
    close(file);
    const uint64_t entry = gateway_.entries.ask.value();
    std::memcpy(tables_.begin() + tables::kAskEntry, &entry, sizeof entry);
    isa::Assembler asked = code_.assembler(kAskingCode);
    emit_leave(asked);
    divert(gateway_.begin);
    // rdi: where to go, rsi: the flags.
    isa::Assembler enter = code_.assembler(kEntryCode);
    raw(enter, 0x56);  // push rsi
    enter.mov_rcx_imm64(kRcxInside);
    raw(enter, 0xb8), enter.u32(kRaxInside);  // mov eax
    raw(enter, 0xba), enter.u32(kRdxInside);  // mov edx
    raw(enter, 0x9d, 0xff, 0xe7);             // popfq; jmp rdi
  }
  void TearDown() override {
    if (place_ != nullptr) munmap(place_, kPages * asks::kPageBytes);
  }
  // Where the gateway puts down all registers: keeps two, and returns the flags.
  static void emit_leave(isa::Assembler& as) {
    as.mov_gs_reg(tcb::kCall, 0);
    as.mov_gs_reg(tcb::kCall + 8, 2);
    raw(as, 0x9c, 0x58, 0xc3);  // pushfq; pop rax; ret
  }

  uint8_t* place_ = nullptr;
};

TEST_F(Asks, AreToldByTheirAddresses) {
  using Entry = uint64_t (*)(const uint8_t* to, uint64_t flags);
  const auto entry = reinterpret_cast<Entry>(code_.at(kEntryCode));
  for (uint32_t number = 0; number < kPages * asks::kPerPage; ++number) {
    const uint64_t offset = asks::offset_of(number);
    EXPECT_EQ(asks::number_at(offset), number);
    EXPECT_EQ(asks::number_at(offset + asks::kBytes - 1), number);
    EXPECT_FALSE(asks::is_in_tail(offset + asks::kBytes - 1));
    const uint8_t* at = place_ + (offset - asks::kBegin);
    for (const uint64_t flags : {uint64_t{0}, kStatusFlags}) {
      block_.put(tcb::kAsked, 0);
      block_.put(tcb::kSpillRcx, 0);
      block_.put(tcb::kRequest, 0);
      EXPECT_EQ(entry(at, flags | kFlagsAlwaysSet) & kStatusFlags, flags);
      EXPECT_EQ(block_.get(tcb::kAsked), reinterpret_cast<uint64_t>(at));
      EXPECT_EQ(block_.get(tcb::kSpillRcx), kRcxInside);
      EXPECT_EQ(block_.get(tcb::kCall), kRaxInside);
      EXPECT_EQ(block_.get(tcb::kCall + 8), kRdxInside);
      EXPECT_EQ(static_cast<uint32_t>(block_.get(tcb::kRequest)),
                static_cast<uint32_t>(Request::kAsk));
    }
  }
  EXPECT_TRUE(asks::is_in_tail(asks::offset_of(asks::kPerPage) - 1));
}

// What the whole zone of an area holds is numbered without gaps.
TEST(AskNumbers, FillTheZone) {
  const uint32_t last = asks::kPagesMax * asks::kPerPage - 1;
  EXPECT_EQ(asks::number_at(asks::offset_of(last)), last);
  EXPECT_LE(asks::offset_of(last) + asks::kBytes, kAreaSizeBytes);
  EXPECT_EQ(asks::offset_of(0), kAreaCodeEnd);
}

}  // namespace
}  // namespace tally::translate
