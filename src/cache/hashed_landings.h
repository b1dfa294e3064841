// Landings by a hash of their address: the table of those that returns seldom come to.
//
// Problem.  A number that stands at the return address (landing_numbers.h) costs a page of memory
// for each page of code in which one stands.  Most of these pages are for landings that are hardly
// ever returned to: of gzip's 45 all but three.
//
// Idea.  Such a landing takes 16 bytes in an open hash table, which generated code looks through
// with the flags and three registers put down (translate/pieces.cpp, `emit_lookup`).  Of each size
// there is one table, at a place of its own (translate::hashed_place):
//
//     entry  1024          1280            1792                  2240
//            | 256 entries | 320 entries | | 448 entries       | | ...
//
// A table begins at four times as many entries as it has, and the next one has at least a quarter
// more, so one word says both which table is in use and where it is.
//
// A landing belongs at the place that the hash says, or at one of the next up to the first that is
// free.  The last eighth of a table is no landing's first place, so nobody looks beyond its end.
// When three quarters are taken, the next table is filled, then used, and the old one's memory is
// given back: whoever still looks there finds nothing, and asks.  (So all but the smallest are
// between six tenths and three quarters full of what has stood there.)
//
// The address of a landing is written after its pointer, and stays in its table; only the pointer
// changes.  So a thread that reads meanwhile finds the way as it was a moment ago, or as it is, or
// 0, which means that it has to ask.
//
// Not handled: more landings than the largest table has room for.  `add` says so; what had a place
// in the one before and has none there asks each time.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/address.h"
#include "base/flat_map.h"
#include "cache/direct_landings.h"

namespace tally::engine {

// Whether it gets a number with all others on its page of code (landings.h).
enum class Moves : uint8_t { kWithItsPage, kAlone };

class HashedLandings {
 public:
  // `tables`: the monitor's view of the target's.
  void begin(uint8_t* tables);

  // There is none, and no memory for any but the smallest table.
  void begin_again();
  // Calls `visit(original, code)` for each.
  void for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const;

  // Leads returns to `original` to `code`, unless they are led already.  False if there is no room.
  bool add(uint64_t original, CacheAddr code, Moves moves);
  // Returns to it ask from now on.
  void remove(uint64_t original);
  void remove(TargetRange range);
  // All returns ask from now on, until `release`; but not those to what is added meanwhile.
  void hold();
  void release();
  bool has(uint64_t original) const { return leads_to(original) != CacheAddr(); }
  // Nowhere if there is none.
  CacheAddr leads_to(uint64_t original) const;
  // Calls `visit(original, code, moves)` for each on a page of code (translate::numbers_page).
  using Visit = std::function<void(uint64_t, CacheAddr, Moves)>;
  void for_each_on_page(uint32_t page, const Visit& visit) const;
  // How many there are.
  size_t size() const { return led_; }
  // Memory of the table in use, with so many of them.
  static constexpr uint64_t table_bytes(size_t landings) {
    constexpr uint64_t kFull = 7, kOf = 10;
    return landings * translate::tables::kHashedBytes * kOf / kFull;
  }

  // One that is there is found by the low bits of its address as well.  False if it has no room, in
  // a table that may grow by so many pages.
  bool add_directly(uint64_t original, size_t more_pages_max);
  // Those that are.
  DirectLandings& direct() { return direct_; }
  const DirectLandings& direct() const { return direct_; }

 private:
  static constexpr uint32_t kNowhere = 0;
  static constexpr uint32_t kNone = 0;  // of indexes: they begin with 1
  struct Landing {
    uint64_t original = 0;
    CacheAddr code;             // none: removed
    uint32_t entry = kNowhere;  // in the table that is in use
    uint32_t on_page = kNone;   // the next one on the page
    bool is_held = false;
    Moves moves = Moves::kWithItsPage;
  };
  uint32_t index_of(uint64_t original) const;
  Landing& find_or_make(uint64_t original);
  void remove(Landing& landing);
  static uint64_t way_to(const Landing& landing);
  bool is_crowded() const;
  bool place(Landing& landing);
  bool place_all(uint32_t entries);
  void give_back(uint32_t entries);
  bool grow();
  void lead(const Landing& landing);

  uint8_t* tables_ = nullptr;
  uint32_t entries_ = 0;     // of the table that is in use
  std::vector<bool> taken_;  // by entry, less the table's first one
  uint32_t taken_count_ = 0;
  size_t led_ = 0;
  std::vector<Landing> landings_ = {{}};  // the first is nobody's
  FlatMap<uint32_t> by_original_;         // indexes
  FlatMap<uint32_t> by_page_;             // of the newest
  DirectLandings direct_;
};

}  // namespace tally::engine
