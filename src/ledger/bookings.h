// What one thread has booked on the ledger, in the form in which it changes that thread's counts.
//
// The ledger's own maps hold the sums over all threads; these say who it was, for the totals of
// single threads (thread_totals.h).
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

namespace tally::engine {

enum class BookingKind : uint8_t {
  kEntered,      // flow appeared in block `index`
  kLeft,         // ... or vanished from it
  kUncounted,    // block `index` was entered, but its counter did not run
  kOvercounted,  // the counter of edge `index` ran, but control did not take the edge
  kUnexecuted,   // instructions of the unit that a counted run did not execute; may be negative
  kUncalled,     // a counted run of block `index` did not come to what the block calls
};

struct BookingKey {
  BookingKind kind = BookingKind::kEntered;
  uint32_t unit = 0;
  uint32_t index = 0;  // 0 for kUnexecuted
  auto operator<=>(const BookingKey&) const = default;
};

using Bookings = std::map<BookingKey, int64_t>;

}  // namespace tally::engine
