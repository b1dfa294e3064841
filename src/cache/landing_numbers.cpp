// Numbers of landings.  See landing_numbers.h.
#include "cache/landing_numbers.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/check.h"
#include "base/give_back.h"
#include "translate/layout.h"

namespace tally::engine {

using namespace translate;

namespace {

// The bytes of numbers are `first`, `first + 1`, ...
struct Alphabet {
  uint32_t first, count;
};
constexpr Alphabet kNarrow{1, 255};
constexpr Alphabet kWide{tables::kWideByteMin, tables::kWideByteMax - tables::kWideByteMin + 1};

constexpr uint32_t byte_of(uint32_t number, uint32_t i) {
  return number >> 8 * i & 0xff;
}

}  // namespace

void LandingNumbers::begin(uint8_t* tables, Returns form, CacheAddr none) {
  tables_ = tables;
  form_ = form;
  none_ = is_wide() ? 0 : none.value();
  if (!is_wide()) lead(0, none_);
}

void LandingNumbers::begin_again(Rows rows) {
  CHECK(held_.empty()) << "numbers that are held";
  if (!is_wide()) {
    give_back(tables_ + tables::kLandings, tables::kHashTables - tables::kLandings);
  } else if (landings_.size() > 1) {
    constexpr uint64_t kPageBytes = 4096, kPointerBytes = 8;
    const uint64_t first = landings_[1].number * kPointerBytes / kPageBytes * kPageBytes;
    const uint64_t end = (landings_.back().number + 1) * kPointerBytes;
    give_back(tables_ + tables::kWideLandings + first, end - first);
  }
  uint8_t* tables = tables_;
  const Returns form = form_;
  const CacheAddr none(none_);
  *this = LandingNumbers();
  begin(tables, form, none);
  rows_ = rows;
}

void LandingNumbers::pair() {
  CHECK(form_ == Returns::kJump) << "numbers of four bytes";
  form_ = Returns::kPairedLate;
  for (const Landing& landing : landings_) {
    if (landing.original != 0) lead(landing.number, leads_to(landing.number));
  }
}

// In `landings_`; 0 if no number stands there.
uint32_t LandingNumbers::index_at(uint32_t address) const {
  const uint32_t* index = by_address_.find(address);
  return index == nullptr ? 0 : *index;
}

// 0 if it has no landing.
size_t LandingNumbers::index_of(uint64_t original) const {
  const uint32_t index = index_at(static_cast<uint32_t>(original));
  return landings_[index].original == original ? index : 0;
}

bool LandingNumbers::is_anothers(uint64_t original) const {
  const uint64_t there = landings_[index_at(static_cast<uint32_t>(original))].original;
  return there != 0 && there != original;
}

// Whether no number stands so near that a value between the two could be taken for one.
bool LandingNumbers::is_apart(uint32_t address) const {
  for (uint32_t near = address - size_bytes(); near != address + size_bytes() + 1; ++near) {
    if (index_at(near) != 0) return false;
  }
  return true;
}

// 0 once all are taken.
uint32_t LandingNumbers::next_number() {
  if (is_wide()) return next_in_row();
  return rows_ == Rows::kLent ? next_in_long_row() : next_in_square();
}

uint32_t LandingNumbers::next_in_square() {
  if (taken_ == 2 * side_) {
    const uint32_t side_max = rows_ == Rows::kAll ? kNarrow.count : tables::kLentRow - 1;
    if (side_ == side_max) return 0;
    side_ += 1;
    taken_ = 1;
    lead_from_neighbours(kNarrow.first + side_ - 1);
  }
  const uint32_t i = taken_++ - 1;
  const uint32_t low = i < side_ ? side_ - 1 : i - side_, high = i < side_ ? i : side_ - 1;
  return (kNarrow.first + high) << 8 | (kNarrow.first + low);
}

// Values (0, low) lead to be asked where they are.
uint32_t LandingNumbers::next_in_long_row() {
  constexpr Alphabet kLow{tables::kLentRow, 256 - tables::kLentRow}, kHigh{1, tables::kLentRow - 1};
  if (taken_ == kLow.count * kHigh.count) return 0;
  const uint32_t low = kLow.first + taken_ % kLow.count, high = kHigh.first + taken_ / kLow.count;
  if (high == kHigh.first) lead(low, none_);
  if (low == kLow.first) lead(high, none_);
  ++taken_;
  return high << 8 | low;
}

uint32_t LandingNumbers::next_in_row() {
  constexpr uint32_t kAll = kWide.count * kWide.count * kWide.count * kWide.count;
  if (taken_ == kAll) return 0;
  uint32_t rest = taken_++;
  uint32_t number = 0;
  for (uint32_t i = 0; i < sizeof number; ++i, rest /= kWide.count) {
    number |= (kWide.first + rest % kWide.count) << 8 * i;
  }
  return number;
}

// What a return may read that comes to a neighbour of an address whose number has this byte.
void LandingNumbers::lead_from_neighbours(uint32_t byte) {
  lead(byte, none_);
  lead(byte << 8, none_);
}

// The bytes from the first to the last of what is fresh on the page.
bool LandingNumbers::write_page(uint32_t page, std::span<const uint32_t> fresh,
                                const Write& write) {
  uint32_t begin = UINT32_MAX, last = 0;
  for (const uint32_t index : fresh) {
    begin = std::min(begin, landings_[index].address);
    last = std::max(last, landings_[index].address);
  }
  std::array<uint8_t, kNumbersPageBytes + sizeof(uint32_t)> bytes{};
  const uint32_t length = last - begin + size_bytes();
  for (uint32_t i = pages_.find(page)->newest; i != 0; i = landings_[i].on_page) {
    const Landing& landing = landings_[i];
    if (landing.address < begin || landing.address > last) continue;
    for (uint32_t k = 0; k < size_bytes(); ++k) {
      bytes[landing.address - begin + k] = static_cast<uint8_t>(byte_of(landing.number, k));
    }
  }
  return write(begin, std::span(bytes).first(length));
}

void LandingNumbers::mark_written(uint32_t page) {
  const Page* there = pages_.find(page);
  if (there != nullptr && there->written) return;
  pages_.set(page, {there == nullptr ? 0 : there->newest, true});
  ++pages_written_;
}

bool LandingNumbers::write(const Write& write) {
  if (fresh_.empty()) return true;
  std::ranges::sort(fresh_, {}, [&](uint32_t index) { return landings_[index].address; });
  bool done = true;
  for (size_t begin = 0, end = 0; begin < fresh_.size(); begin = end) {
    const uint32_t page = numbers_page(landings_[fresh_[begin]].address);
    while (end < fresh_.size() && numbers_page(landings_[fresh_[end]].address) == page) ++end;
    done = write_page(page, std::span(fresh_).subspan(begin, end - begin), write);
    if (!done) break;
    mark_written(page);
    // A number may end on the next page.
    mark_written(numbers_page(landings_[fresh_[end - 1]].address + size_bytes() - 1));
  }
  fresh_.clear();
  return done;
}

void LandingNumbers::for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const {
  for (size_t i = 0; i < landings_.size(); ++i) {
    const Landing& landing = landings_[i];
    if (landing.original == 0) continue;
    const uint64_t now = leads_to(landing.number);
    const uint64_t to = now == none_ && i < held_.size() ? held_[i] : now;
    if (to != none_) visit(landing.original, CacheAddr(to));
  }
}

void LandingNumbers::lead(uint32_t number, uint64_t where) {
  const auto put = [&](uint32_t table, uint64_t to) {
    auto* landings = reinterpret_cast<uint64_t*>(tables_ + table);
    std::atomic_ref<uint64_t>(landings[number]).store(to, std::memory_order_release);
  };
  put(is_wide() ? tables::kWideLandings : tables::kLandings, where);
  if (form_ == Returns::kPairedLate) put(tables::kLateLandings, where == none_ ? 0 : where);
}

uint64_t LandingNumbers::leads_to(uint32_t number) const {
  const uint32_t table = is_wide() ? tables::kWideLandings : tables::kLandings;
  auto* landings = reinterpret_cast<uint64_t*>(tables_ + table);
  return std::atomic_ref<uint64_t>(landings[number]).load(std::memory_order_relaxed);
}

void LandingNumbers::hold() {
  held_.clear();
  for (const Landing& landing : landings_) {
    held_.push_back(landing.original == 0 ? none_ : leads_to(landing.number));
    if (landing.original != 0) lead(landing.number, none_);
  }
}

// What was made or led elsewhere in the meantime stays as it is.
void LandingNumbers::release() {
  for (size_t i = 0; i < held_.size(); ++i) {
    const Landing& landing = landings_[i];
    if (landing.original == 0 || leads_to(landing.number) != none_) continue;
    lead(landing.number, held_[i]);
  }
  held_.clear();
}

bool LandingNumbers::add(uint64_t original, CacheAddr code) {
  const auto address = static_cast<uint32_t>(original);
  uint32_t index = index_at(address);
  if (index == 0) {
    if (!is_apart(address)) return false;
    const uint32_t number = next_number();
    if (number == 0) return false;
    index = static_cast<uint32_t>(landings_.size());
    const Page* page = pages_.find(numbers_page(address));
    const Page before = page == nullptr ? Page{} : *page;
    landings_.push_back({0, address, number, before.newest});
    by_address_.set(address, index);
    pages_.set(numbers_page(address), {index, before.written});
    fresh_.push_back(index);
  }
  Landing& landing = landings_[index];
  if (landing.original != 0) return landing.original == original;  // another thread's request
  landing.original = original;
  lead(landing.number, code.value());
  return true;
}

void LandingNumbers::remove(uint64_t original) {
  Landing& landing = landings_[index_of(original)];
  if (landing.original == 0) return;
  landing.original = 0;
  lead(landing.number, none_);
}

void LandingNumbers::remove(TargetRange range) {
  for (Landing& landing : landings_) {
    if (landing.original == 0 || !range.contains(TargetAddr(landing.original))) continue;
    landing.original = 0;
    lead(landing.number, none_);
  }
}

}  // namespace tally::engine
