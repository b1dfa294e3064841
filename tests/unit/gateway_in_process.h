// A gateway with its tables, for tests that execute it in their own process.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>

#include "executable_memory.h"
#include "thread_block.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::translate {

// Tables as a target has them, as far as return addresses below 64 KB go.
class Tables {
 public:
  Tables() {
    memory_ = mmap(nullptr, kSizeBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT | MAP_NORESERVE, -1, 0);
  }
  ~Tables() {
    if (ok()) munmap(memory_, kSizeBytes);
  }
  Tables(const Tables&) = delete;
  Tables& operator=(const Tables&) = delete;
  bool ok() const { return memory_ != MAP_FAILED; }
  uint8_t* begin() const { return static_cast<uint8_t*>(memory_); }
  uint32_t base() const { return static_cast<uint32_t>(reinterpret_cast<uint64_t>(memory_)); }

 private:
  static constexpr size_t kSizeBytes = tables::kLandingNumbers + (64 << 10) + 4096;
  void* memory_;
};

// What registers hold that nobody may change, or see changed.
inline constexpr uint64_t kRaxInside = 0x1a2b3c4d, kRdxInside = 0x5e6f7081;
inline constexpr uint64_t kRcxInside = 0x1122334455667788;

class GatewayInProcess : public testing::Test {
 protected:
  static constexpr size_t kGateway = 0x1000, kAskingCode = 0x8000;

  void SetUp() override {
    ASSERT_TRUE(code_.ok() && tables_.ok() && block_.ok());
    isa::Assembler as = code_.assembler(kGateway);
    gateway_ = emit_gateway(as, tables_.base());
    const GatewayCode::Finding& finds = gateway_.plainly;
    memcpy(tables_.begin() + tables::kFindPopped, &finds.popped, sizeof finds.popped);
    memcpy(tables_.begin() + tables::kFindOnStack, &finds.on_stack, sizeof finds.on_stack);
  }
  // Whoever comes to the entry goes on at kAskingCode instead.
  void divert(CacheAddr entry) {
    isa::Assembler as(code_.at(kGateway) + (entry - gateway_.begin), isa::kJumpBytes, entry);
    as.jmp(code_.address(kAskingCode).value());
  }

  Executable code_;
  Tables tables_;
  ThreadBlock block_;
  GatewayCode gateway_;
};

}  // namespace tally::translate
