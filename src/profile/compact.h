// Two containers for blocks, of which a large program has half a million.
//
// The sizes of a block's few instructions, and the partial runs that next to no block has, would
// cost more as std::vector (24 bytes and an allocation) than all the rest of the block.
//
//   SmallBytes     16 bytes; up to 15 elements are held inside, more of them elsewhere
//   RareVector<T>   8 bytes; a pointer that is null as long as there is nothing
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tally::profile {

class SmallBytes {
 public:
  SmallBytes() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a vector of bytes
  SmallBytes(std::span<const uint8_t> bytes) { set(bytes); }
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a vector of bytes
  SmallBytes(const std::vector<uint8_t>& bytes) { set(bytes); }
  SmallBytes(std::initializer_list<uint8_t> bytes) { set({bytes.begin(), bytes.size()}); }
  SmallBytes(const SmallBytes& other) { set(other); }
  SmallBytes(SmallBytes&& other) noexcept { take(other); }
  SmallBytes& operator=(const SmallBytes& other) {
    if (this != &other) *this = SmallBytes(other);
    return *this;
  }
  SmallBytes& operator=(SmallBytes&& other) noexcept {
    if (this == &other) return *this;
    release();
    take(other);
    return *this;
  }
  ~SmallBytes() { release(); }

  const uint8_t* data() const {
    if (!outside()) return raw_;
    const uint8_t* bytes = nullptr;
    std::memcpy(&bytes, raw_, sizeof bytes);
    return bytes;
  }
  size_t size() const {
    if (!outside()) return raw_[kTag];
    uint32_t size = 0;
    std::memcpy(&size, raw_ + sizeof(void*), sizeof size);
    return size;
  }
  bool empty() const { return size() == 0; }
  const uint8_t* begin() const { return data(); }
  const uint8_t* end() const { return data() + size(); }
  uint8_t operator[](size_t index) const { return data()[index]; }
  uint8_t back() const { return data()[size() - 1]; }
  // NOLINTNEXTLINE(google-explicit-constructor): stands for a vector of bytes
  operator std::span<const uint8_t>() const { return {data(), size()}; }

 private:
  static constexpr size_t kTag = 15;  // the byte that holds the number of elements, or:
  static constexpr uint8_t kOutside = 0xff;
  bool outside() const { return raw_[kTag] == kOutside; }

  void set(std::span<const uint8_t> bytes) {
    if (bytes.size() <= kTag) {
      if (!bytes.empty()) std::memcpy(raw_, bytes.data(), bytes.size());
      raw_[kTag] = static_cast<uint8_t>(bytes.size());
      return;
    }
    const auto size = static_cast<uint32_t>(bytes.size());
    CHECK(size == bytes.size()) << bytes.size() << " bytes";
    auto* copy = new uint8_t[size];
    std::memcpy(copy, bytes.data(), size);
    std::memcpy(raw_, &copy, sizeof copy);
    std::memcpy(raw_ + sizeof copy, &size, sizeof size);
    raw_[kTag] = kOutside;
  }
  void take(SmallBytes& other) {
    std::memcpy(raw_, other.raw_, sizeof raw_);
    other.raw_[kTag] = 0;
  }
  void release() {
    if (outside()) delete[] data();
  }

  // The elements; or pointer and size.
  alignas(void*) uint8_t raw_[16] = {};
};

template <class T>
class RareVector {
 public:
  RareVector() = default;
  RareVector(std::initializer_list<T> items) {
    if (items.size() > 0) items_ = std::make_unique<std::vector<T>>(items);
  }
  RareVector(const RareVector& other) {
    if (other.items_) items_ = std::make_unique<std::vector<T>>(*other.items_);
  }
  RareVector(RareVector&&) noexcept = default;
  RareVector& operator=(RareVector other) noexcept {
    items_ = std::move(other.items_);
    return *this;
  }
  ~RareVector() = default;

  size_t size() const { return items_ ? items_->size() : 0; }
  bool empty() const { return size() == 0; }
  const T* begin() const { return items_ ? items_->data() : nullptr; }
  const T* end() const { return begin() + size(); }
  const T& operator[](size_t index) const { return (*items_)[index]; }
  void push_back(const T& item) {
    if (!items_) items_ = std::make_unique<std::vector<T>>();
    items_->push_back(item);
  }
  void clear() { items_.reset(); }

 private:
  std::unique_ptr<std::vector<T>> items_;
};

}  // namespace tally::profile
