// See direct_landings.h.
#include "cache/direct_landings.h"

#include <atomic>
#include <utility>

#include "base/check.h"
#include "base/give_back.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

namespace {

void put_word(uint8_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(word))
      .store(value, std::memory_order_release);
}

size_t pages_of(const tables::DirectSize& size) {
  constexpr size_t kPageBytes = 4096;
  return (size.size_bytes() + kPageBytes - 1) / kPageBytes;
}

}  // namespace

size_t DirectLandings::more_pages() const {
  return is_in_use() ? pages_of(size_in_use()) - pages_of(tables::kDirectSizes[0]) : 0;
}

const tables::DirectSize& DirectLandings::size_in_use() const {
  return tables::kDirectSizes[*size_];
}

void DirectLandings::begin(uint8_t* tables, const GatewayCode& gateway) {
  tables_ = tables;
  plainly_ = gateway.plainly;
  directly_ = gateway.directly;
  size_ = 0;
  forget();
  use(0);
}

void DirectLandings::use(size_t size) {
  put_word(tables_ + tables::kFindPopped, directly_[size].popped.value());
  put_word(tables_ + tables::kFindOnStack, directly_[size].on_stack.value());
}

void DirectLandings::forget() {
  taken_.assign(size_in_use().entries(), false);
  landings_.clear();
  by_original_ = FlatMap<uint32_t>();
  refused_ = 0;
}

void DirectLandings::begin_again() {
  if (!is_in_use()) return;
  give_back(tables_ + size_in_use().offset, size_in_use().size_bytes());
  size_ = 0;
  forget();
  use(0);
}

void DirectLandings::end() {
  if (!is_in_use()) return;
  begin_again();
  put_word(tables_ + tables::kFindPopped, plainly_.popped.value());
  put_word(tables_ + tables::kFindOnStack, plainly_.on_stack.value());
  size_.reset();
}

void DirectLandings::put(const Landing& landing) const {
  uint8_t* entry = tables_ + size_in_use().offset + tables::kDirectBytes * landing.entry;
  put_word(entry + 8, landing.to);
  put_word(entry, uint32_t{0} - static_cast<uint32_t>(landing.original));
}

bool DirectLandings::place(Landing& landing) {
  const uint32_t first = size_in_use().entry(landing.original);
  for (uint32_t entry = first; entry < first + tables::kDirectProbes; ++entry) {
    if (taken_[entry]) continue;
    taken_[entry] = true;
    landing.entry = entry;
    put(landing);
    return true;
  }
  return false;
}

void DirectLandings::keep(const Landing& landing) {
  by_original_.set(landing.original, static_cast<uint32_t>(landings_.size()));
  landings_.push_back(landing);
}

// To the next size, if that is worth it.  What has no place there is found in the hash table, and
// all that returns look for meanwhile.
bool DirectLandings::grow(size_t more_pages_max) {
  const size_t next = *size_ + 1;
  if (next == std::size(tables::kDirectSizes)) return false;
  if (refused_ < pages_of(tables::kDirectSizes[next])) return false;
  if (pages_of(tables::kDirectSizes[next]) - pages_of(size_in_use()) > more_pages_max) return false;
  const tables::DirectSize before = size_in_use();
  std::vector<Landing> all = std::move(landings_);
  size_ = next;
  forget();
  for (Landing& landing : all) {
    if (place(landing)) keep(landing);
  }
  use(next);
  give_back(tables_ + before.offset, before.size_bytes());
  return true;
}

bool DirectLandings::add(uint64_t original, uint64_t to, size_t more_pages_max) {
  if (!is_in_use()) return false;
  if (has(original)) {
    lead(original, to);
    return true;
  }
  Landing landing{original, to, 0};
  if (!place(landing)) {
    ++refused_;
    if (!grow(more_pages_max) || !place(landing)) return false;
  }
  keep(landing);
  return true;
}

void DirectLandings::lead(uint64_t original, uint64_t to) {
  const uint32_t* index = by_original_.find(original);
  if (index == nullptr) return;
  landings_[*index].to = to;
  put(landings_[*index]);
}

}  // namespace tally::engine
