// Landings that are found at the place which the low bits of their address say.
//
// Problem.  Returns find their landing by a number at the return address, which takes a page of
// memory for each page of code (landing_numbers.h), or in a hash table, which takes some forty
// instructions (hashed_landings.h).  Most pages are returned to neither so often that numbers are
// worth their memory nor so seldom that the instructions do not matter: of the 1,000 pages of cc1
// to which 8,192 returns or more lead in three seconds, 800 have a third of all returns.
//
// Idea.  A landing of the hash table that is returned to more often stands in a second table as
// well, in the entry that the low bits of its address say, or in one of the next three:
//
//     return to 0x55'5555'6789, 8 bits    entry 0x89: is it the address?    then there
//                                         entry 0x8a: is it the address?    then there
//                                         ...
//                                         else in the hash table
//
// That takes some fifteen instructions, and none of them touches a flag (translate/pieces.cpp,
// `emit_find_directly`): a key is what makes the low half of the address 0 when it is added.
//
// The table is small at first, and made larger once as many landings have found no room in it as
// the larger one has pages: each of them may have cost a page of numbers.  (It is not where memory
// is short.)  Which of three sizes is
// in use, two words of the tables say, through which returns without a number jump.
//
// Keys stay, only pointers change, and those are written before their keys: a thread that reads
// meanwhile is led where it would have been a moment ago, or to the hash table.
//
// Not handled: a landing whose four entries are all taken; it stays in the hash table alone.
// Addresses that are alike in their low halves: then nothing is found here (`end`).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/flat_map.h"
#include "translate/unit.h"

namespace tally::engine {

class DirectLandings {
 public:
  // `tables`: the monitor's view of the target's; `gateway`: the first area's.
  void begin(uint8_t* tables, const translate::GatewayCode& gateway);
  // All landings are looked for in the hash table from now on.
  void end();
  // None is here.  No thread may be looking.
  void begin_again();

  // Whether there is such a table.
  bool is_in_use() const { return size_.has_value(); }
  // Leads returns to `original` to `to`; 0: to the hash table.  False if there is no room, in a
  // table that may grow by so many pages.
  bool add(uint64_t original, uint64_t to, size_t more_pages_max);
  // Does so if it has been added.
  void lead(uint64_t original, uint64_t to);
  bool has(uint64_t original) const { return by_original_.find(original) != nullptr; }
  // How many entries are taken.
  size_t size() const { return landings_.size(); }
  // Pages of the table, beyond those of the smallest.
  size_t more_pages() const;

 private:
  struct Landing {
    uint64_t original = 0;
    uint64_t to = 0;
    uint32_t entry = 0;
  };
  const translate::tables::DirectSize& size_in_use() const;
  void use(size_t size);
  bool place(Landing& landing);
  void keep(const Landing& landing);
  bool grow(size_t more_pages_max);
  void put(const Landing& landing) const;
  void forget();

  uint8_t* tables_ = nullptr;
  translate::GatewayCode::Finding plainly_;
  std::array<translate::GatewayCode::Finding, std::size(translate::tables::kDirectSizes)> directly_;
  std::optional<size_t> size_;  // of tables::kDirectSizes
  std::vector<bool> taken_;     // by entry
  std::vector<Landing> landings_;
  FlatMap<uint32_t> by_original_;  // indexes
  size_t refused_ = 0;             // that have found no room in the table in use
};

}  // namespace tally::engine
