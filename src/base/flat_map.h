// A hash map from 64-bit keys to small values, for the lookups that the target waits for.
//
// Open addressing with linear probing in one array; no erase (what is gone is overwritten by the
// caller with a value that says so).  The key ~0 is reserved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace tally {

template <class Value>
class FlatMap {
 public:
  FlatMap() : slots_(64) {}

  Value* find(uint64_t key) {
    for (size_t i = index_of(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == kEmpty) return nullptr;
    }
  }
  const Value* find(uint64_t key) const { return const_cast<FlatMap*>(this)->find(key); }

  void set(uint64_t key, Value value) {
    CHECK(key != kEmpty) << "reserved key";
    if ((size_ + 1) * 4 > slots_.size() * 3) grow();
    for (size_t i = index_of(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == kEmpty) {
        slots_[i] = Slot{key, value};
        ++size_;
        return;
      }
      if (slots_[i].key == key) {
        slots_[i].value = value;
        return;
      }
    }
  }

  size_t size() const { return size_; }

  // Makes room for so many keys at once.
  void reserve(size_t keys) {
    while (slots_.size() * 3 < keys * 4) grow();
  }

 private:
  static constexpr uint64_t kEmpty = ~0ull;
  struct Slot {
    uint64_t key = kEmpty;
    Value value{};
  };
  size_t index_of(uint64_t key) const {
    return (key * 0x9E3779B97F4A7C15ull >> 20) & (slots_.size() - 1);
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old) {
      if (slot.key != kEmpty) set(slot.key, slot.value);
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace tally
