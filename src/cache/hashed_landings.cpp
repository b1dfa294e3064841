// See hashed_landings.h.
#include "cache/hashed_landings.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/give_back.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

namespace {

uint64_t bytes_of(uint32_t entries) {
  return uint64_t{tables::kHashedBytes} * entries;
}

// Where the table of so many entries begins.
uint32_t first_of(uint32_t entries) {
  return hashed_place(0, entries);
}

}  // namespace

void HashedLandings::begin(uint8_t* tables) {
  tables_ = tables;
  entries_ = tables::kHashedEntriesMin;
  taken_.assign(entries_, false);
  memcpy(tables_ + tables::kHashedEntries, &entries_, sizeof entries_);
}

void HashedLandings::begin_again() {
  uint8_t* tables = tables_;
  give_back(entries_);
  DirectLandings direct = std::move(direct_);
  direct.begin_again();
  *this = HashedLandings();
  direct_ = std::move(direct);
  begin(tables);
}

void HashedLandings::for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const {
  for (const Landing& landing : landings_) {
    if (landing.code != CacheAddr()) visit(landing.original, landing.code);
  }
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
  const uint32_t on_page = newest == nullptr ? kNone : *newest;
  landings_.push_back({original, CacheAddr(), kNowhere, on_page});
  by_page_.set(numbers_page(original), index);
  return landings_.back();
}

CacheAddr HashedLandings::leads_to(uint64_t original) const {
  return landings_[index_of(original)].code;
}

uint64_t HashedLandings::way_to(const Landing& landing) {
  return landing.is_held ? 0 : landing.code.value();
}

bool HashedLandings::add_directly(uint64_t original, size_t more_pages_max) {
  CHECK(has(original)) << "a landing that is not there";
  return direct_.add(original, way_to(landings_[index_of(original)]), more_pages_max);
}

void HashedLandings::lead(const Landing& landing) {
  auto* entry =
      reinterpret_cast<uint64_t*>(tables_ + tables::kHashedLandings + bytes_of(landing.entry));
  const uint64_t to = way_to(landing);
  std::atomic_ref<uint64_t>(entry[1]).store(to, std::memory_order_release);
  std::atomic_ref<uint64_t>(entry[0]).store(landing.original, std::memory_order_release);
  direct_.lead(landing.original, to);
}

bool HashedLandings::is_crowded() const {
  return 4 * uint64_t{taken_count_ + 1} > 3 * uint64_t{taken_.size()};
}

// At the first free entry from where it is looked for.  False if the table ends before that.
bool HashedLandings::place(Landing& landing) {
  const uint32_t first = first_of(entries_);
  for (uint32_t i = hashed_place(landing.original, entries_) - first; i < taken_.size(); ++i) {
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

// Places all in a table of so many entries.  False if it ends before that: some are nowhere then.
bool HashedLandings::place_all(uint32_t entries) {
  entries_ = entries;
  taken_.assign(entries_, false);
  taken_count_ = 0;
  bool all = true;
  for (Landing& landing : landings_) {
    landing.entry = kNowhere;
    if (landing.code != CacheAddr() && !place(landing)) all = false;
  }
  return all;
}

void HashedLandings::give_back(uint32_t entries) {
  // The rest of its last page is nobody's: the next table begins behind that.
  tally::give_back(tables_ + tables::kHashedLandings + bytes_of(first_of(entries)),
                   bytes_of(entries));
}

// Goes over to the next table, or the one behind it if that has no room.  False if there is none.
bool HashedLandings::grow() {
  const uint32_t before = entries_;
  uint32_t after = next_hashed_entries(before);
  if (after > tables::kHashedEntriesMax) return false;
  while (!place_all(after) && next_hashed_entries(after) <= tables::kHashedEntriesMax) {
    give_back(after);
    after = next_hashed_entries(after);
  }
  auto* word = reinterpret_cast<uint32_t*>(tables_ + tables::kHashedEntries);
  std::atomic_ref<uint32_t>(*word).store(entries_, std::memory_order_release);
  give_back(before);
  return true;
}

bool HashedLandings::add(uint64_t original, CacheAddr code, Moves moves) {
  CHECK(code != CacheAddr()) << "a landing nowhere";
  Landing& landing = find_or_make(original);
  if (landing.code != CacheAddr()) return true;  // another thread's request
  landing.code = code;
  landing.moves = moves;
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

void HashedLandings::for_each_on_page(uint32_t page, const Visit& visit) const {
  const uint32_t* newest = by_page_.find(page);
  if (newest == nullptr) return;
  for (uint32_t i = *newest; i != kNone; i = landings_[i].on_page) {
    const Landing& landing = landings_[i];
    if (landing.code != CacheAddr()) visit(landing.original, landing.code, landing.moves);
  }
}

}  // namespace tally::engine
