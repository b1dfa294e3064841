// Memory for generated code that a test executes in its own process.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

#include "base/address.h"
#include "isa/assembler.h"

namespace tally {

// Executable memory below 2 GB, as the tables and the code that addresses them want it.
class Executable {
 public:
  Executable() {
    memory_ = mmap(nullptr, kSizeBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  }
  ~Executable() {
    if (ok()) munmap(memory_, kSizeBytes);
  }
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  bool ok() const { return memory_ != MAP_FAILED; }
  uint8_t* at(size_t offset) const { return static_cast<uint8_t*>(memory_) + offset; }
  CacheAddr address(size_t offset) const {
    return CacheAddr(reinterpret_cast<uint64_t>(at(offset)));
  }
  isa::Assembler assembler(size_t offset) const {
    return isa::Assembler(at(offset), kSizeBytes - offset, address(offset));
  }

  static constexpr size_t kSizeBytes = 1 << 16;

 private:
  void* memory_;
};

}  // namespace tally
