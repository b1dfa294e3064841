// See landings.h.
#include "cache/landings.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"

namespace tally::engine {

using translate::numbers_page;

void Landings::begin(uint8_t* tables, translate::Returns form, CacheAddr none,
                     translate::Compare compare, Numbered numbered,
                     const translate::GatewayCode* gateway) {
  numbers_.begin(tables, form, none);
  form_ = form;
  compare_ = compare;
  hashed_.begin(tables);
  numbered_ = numbered;
  const bool may_be_direct = gateway != nullptr && numbered == Numbered::kWhereMany &&
                             compare == translate::Compare::kLow32;
  if (may_be_direct) hashed_.direct().begin(tables, *gateway);
}

bool Landings::is_numbered(uint64_t original) const {
  if (numbers_no_more_) return false;
  return numbered_ == Numbered::kAll || pages_.find(numbers_page(original)) != nullptr;
}

bool Landings::number(uint64_t original, CacheAddr code) {
  if (numbers_.add(original, code)) return true;
  CHECK(compare_ == translate::Compare::kAll64 || !numbers_.is_anothers(original))
      << "two modules alike in the low 32 bits";
  return false;
}

void Landings::number_page(uint64_t original, Limit limit) {
  if (numbers_no_more_ || is_numbered(original)) return;
  if (limit == Limit::kObeyed && has_all_pages()) return;
  const uint32_t page = numbers_page(original);
  pages_.set(page, true);
  ++numbered_pages_;
  std::vector<std::pair<uint64_t, CacheAddr>> there;
  hashed_.for_each_on_page(page, [&](uint64_t at, CacheAddr code, Moves moves) {
    if (moves == Moves::kWithItsPage) there.emplace_back(at, code);
  });
  for (const auto& [at, code] : there) {
    if (number(at, code)) hashed_.remove(at);
  }
}

// Of the two forms of numbers, those of four bytes have pointers side by side.
bool Landings::stays_hashed(uint64_t original, ReturnsTo expected) const {
  return expected == ReturnsTo::kFew && numbered_ == Numbered::kWhereMany &&
         form_ != translate::Returns::kPaired && !numbers_.stands_at(original);
}

bool Landings::is_for_number(ReturnsTo expected) const {
  return expected == ReturnsTo::kMost || (expected == ReturnsTo::kMany && !may_be_direct());
}

size_t Landings::pages_left() const {
  const size_t taken = numbered_pages_ + hashed_.direct().more_pages();
  return pages_max_ - std::min(pages_max_, taken);
}

void Landings::add(uint64_t original, CacheAddr code, ReturnsTo expected) {
  if (numbers_.has(original)) return;
  if (is_for_number(expected)) number_page(original, Limit::kObeyed);
  const bool stays = stays_hashed(original, expected);
  if (is_numbered(original) && !stays && number(original, code)) return;
  if (hashed_.add(original, code, stays ? Moves::kAlone : Moves::kWithItsPage)) {
    if (expected != ReturnsTo::kFew && expected != ReturnsTo::kSome) {
      hashed_.add_directly(original, pages_left());
    }
    return;
  }
  number_page(original, Limit::kIgnored);
  if (is_numbered(original)) number(original, code);
}

void Landings::is_returned_to_often(uint64_t original, Page page) {
  if (!hashed_.has(original)) return;
  const DirectLandings& direct = hashed_.direct();
  const bool may_be_direct = direct.is_in_use() && !is_numbered(original) && !direct.has(original);
  const bool is_found = may_be_direct && hashed_.add_directly(original, pages_left());
  if (is_found || (may_be_direct && page == Page::kStays)) return;
  number_page(original, Limit::kObeyed);
  const CacheAddr code = hashed_.leads_to(original);
  if (code == CacheAddr() || !is_numbered(original)) return;
  if (number(original, code)) hashed_.remove(original);
}

uint32_t Landings::lookups() const {
  constexpr size_t kFew = 4096;  // landings
  const size_t times = hashed_.size() / kFew + 1;
  return std::max(kLookupsMin, kLookupsMax / static_cast<uint32_t>(times));
}

void Landings::remove(uint64_t original) {
  numbers_.remove(original);
  hashed_.remove(original);
}

void Landings::remove(TargetRange range) {
  numbers_.remove(range);
  hashed_.remove(range);
}

void Landings::hold() {
  numbers_.hold();
  hashed_.hold();
}

void Landings::release() {
  numbers_.release();
  hashed_.release();
}

size_t Landings::size() const {
  size_t result = 0;
  for_each([&](uint64_t, CacheAddr) { ++result; });
  return result;
}

void Landings::for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const {
  numbers_.for_each(visit);
  hashed_.for_each(visit);
}

void Landings::begin_again(const std::function<Returned(uint64_t original)>& returned,
                           const std::function<size_t(size_t)>& pages_max,
                           LandingNumbers::Rows rows) {
  struct Landing {
    uint64_t original;
    CacheAddr code;
    ReturnsTo expected;
    uint64_t times, page_times;
  };
  std::vector<Landing> all;
  FlatMap<uint64_t> times;  // by page
  for_each([&](uint64_t original, CacheAddr code) {
    const Returned one = returned(original);
    all.push_back({original, code, one.expected, one.times, 0});
    const uint64_t* before = times.find(numbers_page(original));
    times.set(numbers_page(original), (before == nullptr ? 0 : *before) + one.times);
  });
  for (Landing& one : all) one.page_times = *times.find(numbers_page(one.original));
  std::ranges::stable_sort(all, std::ranges::greater(), &Landing::page_times);
  numbers_.begin_again(rows);
  hashed_.begin_again();
  pages_ = FlatMap<bool>();
  numbered_pages_ = 0;
  pages_max_ = pages_max(all.size());
  // The pages that are returned to most get numbers, and of the rest those first a place where they
  // are found directly that are returned to most.
  for (const Landing& one : all) {
    if (is_for_number(one.expected)) number_page(one.original, Limit::kObeyed);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &Landing::times);
  for (const Landing& one : all) add(one.original, one.code, one.expected);
}

void Landings::number_no_more() {
  numbers_no_more_ = true;
  hashed_.direct().end();
  std::vector<uint64_t> numbered;
  numbers_.for_each([&](uint64_t original, CacheAddr code) {
    hashed_.add(original, code, Moves::kAlone);
    numbered.push_back(original);
  });
  for (const uint64_t original : numbered) numbers_.remove(original);
}

void Landings::write(const LandingNumbers::Write& write) {
  if (!numbers_no_more_ && !numbers_.write(write)) give_numbers_up();
}

// Those that are there lead where they should, or to where all others are looked up.
void Landings::give_numbers_up() {
  given_up_ = numbers_no_more_ = true;
  numbers_.for_each(
      [&](uint64_t original, CacheAddr code) { hashed_.add(original, code, Moves::kAlone); });
}

}  // namespace tally::engine
