// Where returns go: by a number where they are many, by a hash of the address where they are few.
//
// Problem.  A number at the return address is the fastest way to a landing (landing_numbers.h), but
// takes a page of memory for each page of code; an entry of a hash table (hashed_landings.h) takes
// 16 bytes, and some forty instructions at each return.
//
// Idea.  A page of code is *numbered* once returns to it are many, and then its landings get
// numbers.  In between, landings are found by the low bits of their address (direct_landings.h),
// with some fifteen instructions.  Which is right for one is known
//
//   from an earlier run    its weights say that a landing will be returned to often, or
//   from this one          of the returns that look their landing up, one in so many asks: it is
//                          found directly then (tcb::kLookupsLeft), after that many lookups on the
//                          average, some tens of microseconds; sooner in a program with many
//                          landings, whose table is in no cache (`lookups`).  Of those that are
//                          found directly, one in so many asks, too (tcb::kDirectLeft): its page is
//                          numbered then
//
// What can have no number even so (landing_numbers.h) stays in the hash table, and so does a
// landing that by an earlier run's weights (or by this one's so far, if its procedure was hot) is
// hardly ever returned to, until it is, or has had a number before: where numbers have two bytes,
// the pointer of one takes more memory than an entry of that table.
//
// Where memory is short (compact.cpp), only so many pages are numbered, those first that are
// returned to most, and the table of those that are found directly does not grow beyond that.
//
// Numbers are in memory of the target's own, and are written some time after they are given, all
// that have come together at once (`write`).  Until then the returns ask.  If they cannot be
// written, they are given up, and all landings are looked up, or found directly.
//
// Code may come that is alike to other code in the low 32 bits, at which numbers stand: then all
// landings are looked up, too (compare_whole.cpp).
//
// Not handled: a landing for which there is neither a number nor room.  Its returns ask each time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cache/hashed_landings.h"
#include "cache/landing_numbers.h"

namespace tally::engine {

// How many returns find their landing by looking it up before the next one asks: in small programs,
// and in large ones.  (Where an earlier run's weights are known: lookup_pace.h.)
inline constexpr uint32_t kLookupsMax = 4096;
inline constexpr uint32_t kLookupsMin = 512;
// How many are found directly before the next one asks: where nothing is known of what is returned
// to often, and where an earlier run's weights are.
inline constexpr uint32_t kDirectMax = 1u << 16, kDirectMaxWeighed = 1u << 19;
// Where no page is numbered any more.
inline constexpr uint32_t kLookupsEndless = 1u << 31;

enum class ReturnsTo : uint8_t {
  kFew,
  kSome,   // or nothing is known
  kOften,  // too often for the hash table
  kMany,   // worth a number where it could not be found directly
  kMost,   // worth a number
};

class Landings {
 public:
  // Whether all pages are numbered, or those that are worth it.
  enum class Numbered : uint8_t { kAll, kWhereMany };

  // `tables`: the monitor's view of the target's; `none`: where returns that jump go to be asked.
  // `gateway`: the first area's, if landings may be found directly (direct_landings.h).
  void begin(uint8_t* tables, translate::Returns form, CacheAddr none, translate::Compare compare,
             Numbered numbered, const translate::GatewayCode* gateway);
  void pair() { numbers_.pair(); }

  // Leads returns to `original` to `code`, unless they are led already.
  void add(uint64_t original, CacheAddr code, ReturnsTo expected);
  // So many returns to it have been looked up that it is to be found directly, or its page is to be
  // numbered; that may be left alone where it has no room among those that are found directly.
  enum class Page : uint8_t { kStays, kToBeNumbered };
  void is_returned_to_often(uint64_t original, Page page);
  void remove(uint64_t original);
  void remove(TargetRange range);
  // All returns ask from now on, until `release`.
  void hold();
  void release();
  // Calls `visit(original, code)` for each.
  void for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const;
  // What is to be expected of returns to one, and how many there have been, as far as is known.
  struct Returned {
    ReturnsTo expected = ReturnsTo::kSome;
    uint64_t times = 0;
  };
  // All get their numbers, or none, anew, while every thread stands still, none of them in front of
  // an answer that leads by a number.  The target's memory for numbers must have been given back.
  // From now on no more than `pages_max` pages of memory are taken for numbers and by a larger
  // table of those that are found directly, but for landings without another way; it is asked for
  // so many landings when all their memory has been given back.
  void begin_again(const std::function<Returned(uint64_t original)>& returned,
                   const std::function<size_t(size_t landings)>& pages_max,
                   LandingNumbers::Rows rows);
  // Whether no page is numbered any more that could be left alone.
  bool has_all_pages() const { return numbers_no_more_ || pages_left() == 0; }
  // All are looked up from now on, by their whole addresses.
  void number_no_more();
  bool numbers_no_more() const { return numbers_no_more_; }
  // All are looked up from now on, but for those that are found directly: their numbers may stand
  // and lead nowhere, or not stand any more.
  void give_numbers_up();
  bool has(uint64_t original) const { return numbers_.has(original) || hashed_.has(original); }

  // Writes the numbers that have been given since the last time.
  void write(const LandingNumbers::Write& write);

  // All that there are.
  size_t size() const;
  // How many more are to be looked up before one asks.
  uint32_t lookups() const;

  // Those without a number; the target's memory that is there for numbers; and whether these have
  // been given up.
  size_t hashed() const { return hashed_.size(); }
  size_t direct() const { return hashed_.direct().size(); }
  bool may_be_direct() const { return hashed_.direct().is_in_use(); }
  size_t numbered_pages() const { return numbered_pages_; }
  uint64_t touched_bytes() const { return numbers_.touched_bytes(); }
  bool has_given_numbers_up() const { return given_up_; }

 private:
  bool is_numbered(uint64_t original) const;
  bool is_for_number(ReturnsTo expected) const;
  size_t pages_left() const;
  bool number(uint64_t original, CacheAddr code);
  enum class Limit : uint8_t { kObeyed, kIgnored };
  void number_page(uint64_t original, Limit limit);
  bool stays_hashed(uint64_t original, ReturnsTo expected) const;

  LandingNumbers numbers_;
  HashedLandings hashed_;
  translate::Returns form_ = translate::Returns::kJump;
  translate::Compare compare_ = translate::Compare::kAll64;
  Numbered numbered_ = Numbered::kWhereMany;
  bool given_up_ = false;
  bool numbers_no_more_ = false;
  FlatMap<bool> pages_;  // that are numbered, by the low 32 bits
  size_t numbered_pages_ = 0;
  size_t pages_max_ = SIZE_MAX;
};

}  // namespace tally::engine
