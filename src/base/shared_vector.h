// A vector that copies of it share until one of them is changed.
//
// What a procedure's units have in common (its blocks, its edges, the sizes of its instructions)
// never changes once it was found, and of a large program it is tens of megabytes.  To change it
// takes a word of its own, `edit`, so that no copy is made by the way.
//
// Not handled: copies in several threads of which one is changed meanwhile.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tally {

template <class T>
class SharedVector {
 public:
  using value_type = T;
  using const_iterator = const T*;

  SharedVector() = default;
  explicit SharedVector(std::vector<T> items)
      : items_(std::make_shared<std::vector<T>>(std::move(items))) {}

  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T* data() const { return items_ == nullptr ? nullptr : items_->data(); }
  size_t size() const { return items_ == nullptr ? 0 : items_->size(); }
  size_t capacity() const { return items_ == nullptr ? 0 : items_->capacity(); }
  bool empty() const { return size() == 0; }
  const T& operator[](size_t i) const { return (*items_)[i]; }
  const T& front() const { return items_->front(); }
  const T& back() const { return items_->back(); }

  // To be changed: nobody else's from here on.
  std::vector<T>& edit() {
    if (items_ == nullptr) {
      items_ = std::make_shared<std::vector<T>>();
    } else if (items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>(*items_);
    }
    return *items_;
  }
  // The same with nothing in it; memory that is nobody else's is kept.
  std::vector<T>& edit_anew() {
    if (items_ == nullptr || items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>();
    }
    items_->clear();
    return *items_;
  }
  // One of its own, no larger than need be.
  SharedVector copied() const { return SharedVector(std::vector<T>(begin(), end())); }
  void reset() { items_.reset(); }

 private:
  std::shared_ptr<std::vector<T>> items_;
};

}  // namespace tally
