// The tables of a target, for generated code that a test executes in its own process.
#pragma once

#include <sys/mman.h>

#include <cstdint>

#include "translate/layout.h"

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

}  // namespace tally::translate
