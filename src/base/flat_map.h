// A hash map from 64-bit keys to small values, for the lookups that the target waits for.
//
// Open addressing with linear probing in one array; no erase (what is gone is overwritten by the
// caller with a value that says so).  The key ~0 is reserved.
//
// A key's place is given by the highest bits of its hash, so a table twice as large has its keys in
// the same order: growing reads one array and writes another from front to back.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tally {

template <class Value>
class FlatMap {
 public:
  FlatMap() : slots_(kSlotsMin) {}

  Value* find(uint64_t key) {
    for (size_t i = index_of(key);; i = next(i)) {
      if (slots_[i].key == kEmpty) return nullptr;
      if (slots_[i].key == key) return &slots_[i].value;
    }
  }
  const Value* find(uint64_t key) const { return const_cast<FlatMap*>(this)->find(key); }

  void set(uint64_t key, Value value) {
    CHECK(key != kEmpty) << "reserved key";
    if ((size_ + 1) * 4 > slots_.size() * 3) resize(slots_.size() * 2);
    size_t i = index_of(key);
    for (; slots_[i].key != key; i = next(i)) {
      if (slots_[i].key != kEmpty) continue;
      slots_[i].key = key;
      ++size_;
      break;
    }
    slots_[i].value = value;
  }

  size_t size() const { return size_; }

 private:
  static constexpr uint64_t kEmpty = ~0ull;
  static constexpr size_t kSlotsMin = 64;
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };
  size_t index_of(uint64_t key) const { return key * 0x9E3779B97F4A7C15ull >> shift_; }
  size_t next(size_t index) const { return (index + 1) & (slots_.size() - 1); }
  void resize(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(slots));
    for (const Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      size_t i = index_of(slot.key);
      while (slots_[i].key != kEmpty) i = next(i);
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  unsigned shift_ = 64 - static_cast<unsigned>(std::countr_zero(kSlotsMin));
};

}  // namespace tally
