// A thread block that generated code finds through gs when a test executes it in its own process;
// glibc leaves gs alone.
#pragma once

#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "isa/assembler.h"
#include "translate/layout.h"

namespace tally::translate {

// The status flags in the order of the flags register.
constexpr uint64_t kStatusFlags = 0x8d5;
constexpr uint64_t kFlagsAlwaysSet = 0x2;

template <class... B>
void raw(isa::Assembler& as, B... b) {
  const uint8_t data[] = {static_cast<uint8_t>(b)...};
  as.bytes(data, sizeof data);
}

// In gs for as long as it lives, with room for 64 counters.
class ThreadBlock {
 public:
  ThreadBlock() : bytes_(tcb::kCounters + 64 * 8) {
    set_ = syscall(SYS_arch_prctl, ARCH_SET_GS, bytes_.data()) == 0;
  }
  ~ThreadBlock() { syscall(SYS_arch_prctl, ARCH_SET_GS, 0); }
  ThreadBlock(const ThreadBlock&) = delete;
  ThreadBlock& operator=(const ThreadBlock&) = delete;

  bool ok() const { return set_; }
  uint64_t get(uint32_t offset) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }
  void put(uint32_t offset, uint64_t value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
  }

 private:
  std::vector<uint8_t> bytes_;
  bool set_ = false;
};

}  // namespace tally::translate
