// See hashed_landings.h.
#include "cache/hashed_landings.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

namespace {

uint64_t table_bytes(uint32_t bits) {
  return uint64_t{tables::kHashedBytes} << bits;
}

}  // namespace

void HashedLandings::begin(uint8_t* tables) {
  tables_ = tables;
  bits_ = tables::kHashedBitsMin;
  taken_.assign(size_t{1} << bits_, false);
  const uint32_t shift = 31 - bits_;
  memcpy(tables_ + tables::kHashedShift, &shift, sizeof shift);
}

// Of the one that is nobody's, and leads nowhere, if there is none.
uint32_t HashedLandings::index_of(uint64_t original) const {
  const uint32_t* index = by_original_.find(original);
  return index == nullptr ? kNone : *index;
}

HashedLandings::Landing& HashedLandings::find_or_make(uint64_t original) {
  if (const uint32_t known = index_of(original); known != kNone) return landings_[known];
  const auto index = static_cast<uint32_t>(landings_.size());
  by_original_.set(original, index);
  const uint32_t* newest = by_page_.find(numbers_page(original));
  landings_.push_back({original, CacheAddr(), kNowhere, newest == nullptr ? kNone : *newest});
  by_page_.set(numbers_page(original), index);
  return landings_.back();
}

bool HashedLandings::has(uint64_t original) const {
  return landings_[index_of(original)].code != CacheAddr();
}

void HashedLandings::lead(const Landing& landing) const {
  auto* entry = reinterpret_cast<uint64_t*>(tables_ + tables::kHashedLandings +
                                            uint64_t{tables::kHashedBytes} * landing.entry);
  const uint64_t to = landing.is_held ? 0 : landing.code.value();
  std::atomic_ref<uint64_t>(entry[1]).store(to, std::memory_order_release);
  std::atomic_ref<uint64_t>(entry[0]).store(landing.original, std::memory_order_release);
}

bool HashedLandings::is_crowded() const {
  return 4 * uint64_t{taken_count_ + 1} > 3 * uint64_t{taken_.size()};
}

// At the first free entry from where it is looked for.  False if the table ends before that.
bool HashedLandings::place(Landing& landing) {
  const uint32_t first = 1u << bits_;
  for (uint32_t i = hashed_place(landing.original, bits_) - first; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    // Whoever looks for what is not there stops at a free entry.
    if (i + 1 == taken_.size()) return false;
    taken_[i] = true;
    ++taken_count_;
    landing.entry = first + i;
    lead(landing);
    return true;
  }
  return false;
}

// Goes over to the next table.  False if there is none.
bool HashedLandings::grow() {
  if (bits_ == tables::kHashedBitsMax) return false;
  const uint32_t before = bits_++;
  taken_.assign(size_t{1} << bits_, false);
  taken_count_ = 0;
  for (Landing& landing : landings_) {
    landing.entry = kNowhere;
    if (landing.code != CacheAddr()) place(landing);
  }
  const uint32_t shift = 31 - bits_;
  auto* word = reinterpret_cast<uint32_t*>(tables_ + tables::kHashedShift);
  std::atomic_ref<uint32_t>(*word).store(shift, std::memory_order_release);
  uint8_t* old = tables_ + tables::kHashedLandings + table_bytes(before);
  if (madvise(old, table_bytes(before), MADV_REMOVE) != 0) memset(old, 0, table_bytes(before));
  return true;
}

bool HashedLandings::add(uint64_t original, CacheAddr code) {
  CHECK(code != CacheAddr()) << "a landing nowhere";
  Landing& landing = find_or_make(original);
  if (landing.code != CacheAddr()) return true;  // another thread's request
  landing.code = code;
  landing.is_held = false;
  ++led_;
  if (landing.entry != kNowhere) {
    lead(landing);
    return true;
  }
  if (!is_crowded() && place(landing)) return true;
  // Growing places this one, too.
  if (!grow()) place(landing);
  if (landing.entry != kNowhere) return true;
  remove(landing);
  return false;
}

void HashedLandings::remove(Landing& landing) {
  if (landing.code == CacheAddr()) return;
  landing.code = CacheAddr();
  --led_;
  if (landing.entry != kNowhere) lead(landing);
}

void HashedLandings::remove(uint64_t original) {
  remove(landings_[index_of(original)]);
}

void HashedLandings::remove(TargetRange range) {
  for (Landing& landing : landings_) {
    if (range.contains(TargetAddr(landing.original))) remove(landing);
  }
}

void HashedLandings::hold() {
  for (Landing& landing : landings_) {
    if (landing.code == CacheAddr()) continue;
    landing.is_held = true;
    lead(landing);
  }
}

// What was removed, or made again, in the meantime stays as it is.
void HashedLandings::release() {
  for (Landing& landing : landings_) {
    if (!landing.is_held) continue;
    landing.is_held = false;
    if (landing.code != CacheAddr()) lead(landing);
  }
}

void HashedLandings::for_each_on_page(uint32_t page,
                                      const std::function<void(uint64_t, CacheAddr)>& visit) const {
  const uint32_t* newest = by_page_.find(page);
  if (newest == nullptr) return;
  for (uint32_t i = *newest; i != kNone; i = landings_[i].on_page) {
    if (landings_[i].code != CacheAddr()) visit(landings_[i].original, landings_[i].code);
  }
}

}  // namespace tally::engine
