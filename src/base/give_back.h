// Memory that is shared through a file of the kernel's (memfd), and is not needed any more.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstring>

namespace tally {

// Zeros from now on, for all who share it.  The pages that the range has a part of are the
// kernel's again, where it can take them back: nothing else may be on the last one.  `begin` is at
// the beginning of a page.
inline void give_back(uint8_t* begin, uint64_t size_bytes) {
  if (madvise(begin, size_bytes, MADV_REMOVE) != 0) std::memset(begin, 0, size_bytes);
}

}  // namespace tally
