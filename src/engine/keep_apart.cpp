// Mappings that the kernel places where their addresses are alike to other code's.
//
// Comparisons and landings look at the low 32 bits of addresses (translate/unit.h), which is exact
// only as long as no two addresses of code are alike in them.  A new mapping that would be, and
// whose place the program left to the kernel, is unmapped and made again where it is not; so is one
// that may become code, for which it has only hinted at a place near its code.  The program sees
// what the second call returned.  What it wants at a fixed address stays there; should
// it hold code that is alike to other code, that is refused by name.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "engine/service.h"

namespace tally::engine {

namespace {

// Larger ones are reservations of data; hardly any place would do for them.
constexpr uint64_t kLargestKeptApartBytes = 1ull << 30;
constexpr uint64_t kLargestHintedBytes = 512ull << 20;
constexpr unsigned kAttemptsMax = 4;
constexpr uint64_t kOwnPlace = MAP_FIXED | MAP_FIXED_NOREPLACE | MAP_GROWSDOWN | MAP_HUGETLB;

// An address without MAP_FIXED is a hint: who gives one must look at what comes back.  Data stays
// where it is hinted at, since the less is moved the better (Go looks for another place for its
// heap).  What may become code does not: compilers at run time reserve their room without any
// permission, near the code that it is to work with.
bool is_left_to_kernel(const std::array<uint64_t, 6>& arguments, uint64_t size_bytes,
                       bool near_code) {
  if ((arguments[3] & kOwnPlace) != 0) return false;
  if (arguments[0] == 0) return size_bytes <= kLargestKeptApartBytes;
  if ((arguments[2] & PROT_EXEC) != 0) return size_bytes <= kLargestHintedBytes;
  return arguments[2] == PROT_NONE && near_code && size_bytes <= kLargestHintedBytes;
}

}  // namespace

// Goes in front of everything else that is done about a finished call: it may be begun again.
Result<uint64_t> Service::keep_apart(const PendingCall& call, uint64_t result) {
  const uint64_t size_bytes = (call.arguments[1] + 0xfff) & ~uint64_t{0xfff};
  if (call.number != SYS_mmap) return result;
  const bool near_code =
      modules_.is_near_code({TargetAddr(result), TargetAddr(result + size_bytes)});
  if (!is_left_to_kernel(call.arguments, size_bytes, near_code)) return result;
  for (unsigned attempt = 0; attempt < kAttemptsMax; ++attempt) {
    const TargetRange range{TargetAddr(result), TargetAddr(result + size_bytes)};
    // Decided once: when this is begun again, what was unmapped and mapped meanwhile is different.
    if (attempt == places_.size()) places_.push_back(modules_.apart_from_code(range));
    const std::optional<TargetAddr> better = places_[attempt];
    if (!better) return result;
    TRY(call_in_target(SYS_munmap, {result, size_bytes, 0, 0, 0, 0}));
    std::array<uint64_t, 6> again = call.arguments;
    again[2] = protection_for_kernel(again[2]);
    // As a hint it would not do: the kernel wants more room than it needs, to align large pages.
    again[0] = better->value();
    again[3] |= MAP_FIXED_NOREPLACE;
    TRY_ASSIGN(int64_t placed, call_in_target(SYS_mmap, again));
    if (placed < 0) {  // another thread was faster, perhaps
      again[0] = call.arguments[0];
      again[3] = call.arguments[3];
      TRY_ASSIGN(placed, call_in_target(SYS_mmap, again));
    }
    if (std::getenv("TALLY_DEBUG") != nullptr) {
      fmt::print(stderr, "tally: debug: process {}: {:#x} bytes moved from {:#x} to {:#x}\n",
                 process_.pid(), size_bytes, result, placed);
    }
    if (placed < 0) return static_cast<uint64_t>(placed);
    result = static_cast<uint64_t>(placed);
  }
  return result;
}

}  // namespace tally::engine
