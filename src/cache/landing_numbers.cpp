// Numbers of landings.  See landing_numbers.h.
#include "cache/landing_numbers.h"

#include <algorithm>
#include <atomic>

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

constexpr Alphabet alphabet_of(bool wide) {
  return wide ? kWide : kNarrow;
}

constexpr uint32_t byte_of(uint32_t number, uint32_t i) {
  return number >> 8 * i & 0xff;
}

// Of a place on the two new sides of a square, given as its two coordinates from 1 on.
constexpr uint32_t place_in_squares(uint32_t low, uint32_t high) {
  const uint32_t side = std::max(low, high);
  return (side - 1) * (side - 1) + (low == side ? high - 1 : side + low - 1);
}

}  // namespace

void LandingNumbers::begin(uint8_t* tables, Returns form, CacheAddr none) {
  tables_ = tables;
  form_ = form;
  none_ = is_wide() ? 0 : none.value();
  if (!is_wide()) lead(0, none_);
}

void LandingNumbers::pair() {
  CHECK(form_ == Returns::kJump) << "numbers of four bytes";
  form_ = Returns::kPairedLate;
  for (const Landing& landing : landings_) {
    if (landing.original != 0) lead(landing.number, leads_to(landing.number));
  }
}

uint8_t& LandingNumbers::byte_at(uint32_t address) const {
  return tables_[tables::kLandingNumbers + uint64_t{address}];
}

// Of what stands at an address in `landings_`; 0 if that is no number, or none that was given away:
// the program can write there.
uint32_t LandingNumbers::index_at(uint32_t address) const {
  uint32_t number = 0;
  for (uint32_t i = 0; i < size_bytes(); ++i) {
    const uint32_t byte = byte_at(address + i);
    if (byte == 0) return 0;
    number |= byte << 8 * i;
  }
  const Alphabet bytes = alphabet_of(is_wide());
  const auto place = [&](uint32_t i) { return byte_of(number, i) - bytes.first; };
  const uint32_t square = is_wide() ? place(3) * bytes.count + place(2) : 0;
  const uint32_t index =
      1 + square * bytes.count * bytes.count + place_in_squares(place(0) + 1, place(1) + 1);
  return index < landings_.size() ? index : 0;
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
  for (uint32_t i = 0; i < size_bytes() + 2; ++i) {
    if (byte_at(address - 1 + i) != 0) return false;
  }
  return true;
}

// 0 once all are taken.
uint32_t LandingNumbers::next_number() {
  const Alphabet bytes = alphabet_of(is_wide());
  const uint32_t squares_max = is_wide() ? bytes.count * bytes.count : 1;
  if (squares_ == squares_max) return 0;
  if (taken_ == 0) lead_from_neighbours(bytes.first + side_++);
  const uint32_t i = taken_++;
  const uint32_t low = i < side_ ? side_ - 1 : i - side_, high = i < side_ ? i : side_ - 1;
  const uint32_t upper = is_wide() ? (bytes.first + squares_ / bytes.count) << 8 |
                                         (bytes.first + squares_ % bytes.count)
                                   : 0;
  if (taken_ == 2 * side_ - 1) taken_ = 0;
  if (taken_ == 0 && side_ == bytes.count) {
    side_ = 0;
    ++squares_;
  }
  return upper << 16 | (bytes.first + high) << 8 | (bytes.first + low);
}

// What a return may read that comes to a neighbour of an address whose number has this byte.
void LandingNumbers::lead_from_neighbours(uint32_t byte) {
  if (is_wide()) return;  // their pointers are 0, as they ought to be
  lead(byte, none_);
  lead(byte << 8, none_);
}

void LandingNumbers::write_number(uint32_t address, uint32_t number) {
  for (uint32_t i = 0; i < size_bytes(); ++i) {
    const auto byte = static_cast<uint8_t>(byte_of(number, i));
    std::atomic_ref<uint8_t>(byte_at(address + i)).store(byte, std::memory_order_release);
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
  const bool fresh = index == 0;
  if (fresh) {
    if (!is_apart(address)) return false;
    const uint32_t number = next_number();
    if (number == 0) return false;
    index = static_cast<uint32_t>(landings_.size());
    landings_.push_back({0, number});
  }
  Landing& landing = landings_[index];
  if (landing.original != 0) return landing.original == original;  // another thread's request
  landing.original = original;
  lead(landing.number, code.value());
  if (fresh) write_number(address, landing.number);
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
