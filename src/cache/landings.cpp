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

void Landings::number_page(uint64_t original) {
  if (numbers_no_more_ || is_numbered(original)) return;
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

void Landings::add(uint64_t original, CacheAddr code, ReturnsTo expected) {
  if (numbers_.has(original)) return;
  const bool may_be_direct = hashed_.direct().is_in_use();
  const bool is_for_number =
      expected == ReturnsTo::kMost || (expected == ReturnsTo::kMany && !may_be_direct);
  if (is_for_number) number_page(original);
  const bool stays = stays_hashed(original, expected);
  if (is_numbered(original) && !stays && number(original, code)) return;
  if (hashed_.add(original, code, stays ? Moves::kAlone : Moves::kWithItsPage)) {
    if (expected == ReturnsTo::kOften || expected == ReturnsTo::kMany) {
      hashed_.add_directly(original);
    }
    return;
  }
  number_page(original);
  if (is_numbered(original)) number(original, code);
}

void Landings::is_returned_to_often(uint64_t original, Page page) {
  if (!hashed_.has(original)) return;
  const DirectLandings& direct = hashed_.direct();
  const bool may_be_direct = direct.is_in_use() && !is_numbered(original) && !direct.has(original);
  if (may_be_direct && (hashed_.add_directly(original) || page == Page::kStays)) return;
  number_page(original);
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

void Landings::for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const {
  numbers_.for_each(visit);
  hashed_.for_each(visit);
}

void Landings::begin_again(const std::function<ReturnsTo(uint64_t original)>& expected) {
  std::vector<std::pair<uint64_t, CacheAddr>> all;
  for_each([&](uint64_t original, CacheAddr code) { all.emplace_back(original, code); });
  numbers_.begin_again();
  hashed_.begin_again();
  pages_ = FlatMap<bool>();
  numbered_pages_ = 0;
  for (const auto& [original, code] : all) add(original, code, expected(original));
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
  if (numbers_no_more_ || numbers_.write(write)) return;
  // Some are there, and lead where they should.
  refused_ = numbers_no_more_ = true;
  numbers_.for_each(
      [&](uint64_t original, CacheAddr code) { hashed_.add(original, code, Moves::kAlone); });
}

}  // namespace tally::engine
