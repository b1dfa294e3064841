// Distinct types for distinct address spaces.
//
// Tally juggles several kinds of 64-bit numbers that all look alike: an address in the running
// target, the same instruction's address in the module's own ELF file, an offset in that file and
// an address in the code cache.  Mixing two of them compiles silently when all are uint64_t and
// costs a day to find.  So each is a type of its own; the only way across is a named function that
// knows the load bias (for example `Module::to_link`).
//
//   LinkAddr    address as the module's ELF headers say it (what objdump prints)
//   TargetAddr  address in the running target, where the program believes it is
//   CacheAddr   address of generated code or data of ours, as the target sees it
//   FileOffset  offset in a file
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tally {

template <class Tag>
class StrongAddress {
 public:
  constexpr StrongAddress() = default;
  constexpr explicit StrongAddress(uint64_t value) : value_(value) {}
  constexpr uint64_t value() const { return value_; }
  constexpr auto operator<=>(const StrongAddress&) const = default;
  constexpr StrongAddress operator+(uint64_t offset_bytes) const {
    return StrongAddress(value_ + offset_bytes);
  }
  constexpr StrongAddress operator-(uint64_t offset_bytes) const {
    return StrongAddress(value_ - offset_bytes);
  }
  // Distance in bytes; meaningful only within one object.
  constexpr int64_t operator-(StrongAddress other) const {
    return static_cast<int64_t>(value_ - other.value_);
  }
  constexpr StrongAddress& operator+=(uint64_t offset_bytes) {
    value_ += offset_bytes;
    return *this;
  }

 private:
  uint64_t value_ = 0;
};

using LinkAddr = StrongAddress<struct LinkAddrTag>;
using TargetAddr = StrongAddress<struct TargetAddrTag>;
using CacheAddr = StrongAddress<struct CacheAddrTag>;
using FileOffset = StrongAddress<struct FileOffsetTag>;

// A half-open range [begin, end) in one address space.
template <class Address>
struct AddressRange {
  Address begin;
  Address end;
  constexpr bool contains(Address a) const { return begin <= a && a < end; }
  constexpr uint64_t size_bytes() const { return end.value() - begin.value(); }
  constexpr bool empty() const { return end <= begin; }
  constexpr bool operator==(const AddressRange&) const = default;
};

using LinkRange = AddressRange<LinkAddr>;
using TargetRange = AddressRange<TargetAddr>;
using CacheRange = AddressRange<CacheAddr>;

}  // namespace tally

template <class Tag>
struct std::hash<tally::StrongAddress<Tag>> {
  size_t operator()(tally::StrongAddress<Tag> a) const noexcept {
    // Fibonacci hashing: code addresses share their low bits' pattern.
    return static_cast<size_t>(a.value() * 0x9E3779B97F4A7C15ull);
  }
};
