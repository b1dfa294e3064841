// The tables through which a return finds its landing: a number at the return address, a pointer by
// the number (translate/unit.h).
//
// Problem.  Returns compare nothing, so each address of code that could be returned to must tell
// whether a landing is there.  Four bytes for each byte of code were most of Tally's memory.
//
// Idea.  Numbers of several bytes stand *at* the return address, in a table of one byte for each
// byte of code.  No byte of a number is zero.  A return to an address that has none, but a
// neighbour that has, reads some bytes of that one and zeros.  Such values are no number, and lead
// to where is asked, as 0 does.  Addresses so close together that this would not be so are rare
// (two calls through registers, one behind the other): the later of them gets no number, and is
// found in the chains (code_cache.h).
//
// Returns that jump have numbers of two bytes.  Their pointers must lead somewhere whatever is
// read, so those of the values (0, low) and (high, 0) are set with the first number that has such a
// byte.  Those of values (0, low) lie a row of the table apart.  So numbers are taken from growing
// squares, low and high both at most k, and a program with few landings touches few pages.  65,025
// are enough for programs of this form (`Returns`); what is beyond that is found in the chains.
//
// Where rows from the 32nd on are all mapped to one page, on which nothing leads anywhere
// (Region::lend_landings), pages are full before there is another: numbers are taken from the other
// rows, one after the other, and of each those whose low byte is that of a row of that page.  These
// are 6,944, for programs that are known to have fewer landings.
//
// Returns that pair up with calls from the start look at the pointer, so it may be 0, as the whole
// table is at first.  Theirs are numbers of four bytes (translate/layout.h says which), 78 million
// of them, taken row by row, which touches the fewest pages.
//
// Where a program that began with jumps goes on in pairs, numbers stay as they are, and a second
// table of pointers has 0 where the first leads to be asked.
//
// A number belongs to its address for good, and its bytes are written once, in any order.  What
// changes is the pointer.  So a thread that reads meanwhile sees it, or a value that is no number.
//
// The table of numbers is not shared with the target: in shared memory a return that reads where
// there is no number would make a page of zeros.  It is the target's own memory, which the monitor
// writes to as a debugger does, a page at a time (`write`).  What stands there is remembered here.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/flat_map.h"
#include "translate/layout.h"
#include "translate/unit.h"

namespace tally::engine {

class LandingNumbers {
 public:
  // `tables`: the monitor's view of the target's; `none`: where returns that jump go to be asked.
  void begin(uint8_t* tables, translate::Returns form, CacheAddr none);

  // Which pointers there are for numbers of two bytes.
  enum class Rows : uint8_t {
    kAll,
    kSomeLent,  // of those that can be; it went wrong
    kLent,
  };
  // No number stands anywhere, and none has been given: the target's memory for them was given
  // back.
  void begin_again(Rows rows);

  // Returns that jump are paired with calls from now on, and these ones look elsewhere, too.
  void pair();

  // Leads returns to `original` to `code`.  False where there is no number for it: all are given
  // away, one stands too near, or the same low 32 bits are another landing's.
  bool add(uint64_t original, CacheAddr code);
  // Returns to it ask from now on, as those to other addresses without a landing.
  void remove(uint64_t original);
  void remove(TargetRange range);
  // All returns ask from now on, until `release`.
  void hold();
  void release();
  bool has(uint64_t original) const { return index_of(original) != 0; }
  // Whether a number stands there, though it may lead nowhere at the moment.
  bool stands_at(uint64_t original) const { return index_at(static_cast<uint32_t>(original)) != 0; }
  // Whether returns to it would come to the landing of another address, alike in the low 32 bits.
  bool is_anothers(uint64_t original) const;
  // Calls `visit(original, code)` for each landing.
  void for_each(const std::function<void(uint64_t, CacheAddr)>& visit) const;

  // Writes the numbers given since the last time: bytes, at an offset in the table.  False as soon
  // as `write` is: some are not there then.
  using Write = std::function<bool(uint64_t at, std::span<const uint8_t> bytes)>;
  bool write(const Write& write);
  // Of the table: pages with a number or a part of one.
  uint64_t touched_bytes() const { return uint64_t{translate::kNumbersPageBytes} * pages_written_; }

 private:
  struct Landing {
    uint64_t original = 0;  // 0: none at the moment
    uint32_t address = 0;   // where the number stands, for good
    uint32_t number = 0;
    uint32_t on_page = 0;  // the next one whose number begins there
  };
  struct Page {
    uint32_t newest = 0;  // landing
    bool written = false;
  };
  bool is_wide() const { return form_ == translate::Returns::kPaired; }
  uint32_t size_bytes() const { return is_wide() ? 4 : 2; }
  uint32_t index_at(uint32_t address) const;
  size_t index_of(uint64_t original) const;
  bool is_apart(uint32_t address) const;
  uint32_t next_number();
  uint32_t next_in_square();
  uint32_t next_in_long_row();
  uint32_t next_in_row();
  void lead_from_neighbours(uint32_t byte);
  void mark_written(uint32_t page);
  bool write_page(uint32_t page, std::span<const uint32_t> fresh, const Write& write);
  void lead(uint32_t number, uint64_t where);
  uint64_t leads_to(uint32_t number) const;

  uint8_t* tables_ = nullptr;
  translate::Returns form_ = translate::Returns::kJump;  // kPairedLate: some still jump
  uint64_t none_ = 0;
  Rows rows_ = Rows::kAll;
  uint32_t side_ = 0;             // of the square that numbers are taken from
  uint32_t taken_ = 0;            // one more than on its two new sides; or of all rows
  FlatMap<uint32_t> by_address_;  // landings
  FlatMap<Page> pages_;           // by the upper 20 bits of addresses
  std::vector<uint32_t> fresh_;   // landings whose numbers are not yet written
  size_t pages_written_ = 0;
  std::vector<uint64_t> held_;            // by landing: where it led; empty if nothing is held
  std::vector<Landing> landings_ = {{}};  // in the order of their numbers; the first is nobody's
};

}  // namespace tally::engine
