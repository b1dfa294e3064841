// What is to be translated again in mid-run, and what is known of it (renew.cpp, compact.cpp).
//
// A unit's counts are those since it was made.  What had run before then shows in which of its
// blocks had code at first, as only those get theirs at once that had; or in a number that is
// handed on, as what seems to be over gets none at all.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/translated.h"

namespace tally::engine {

struct Renewal {
  uint32_t unit = 0;
  uint64_t heaviest = 0;       // count of an edge, below which the steps are (edge_weights.h)
  std::vector<uint8_t> steps;  // by edge
  bool for_now = false;        // it may turn out to be hot yet
  bool is_over = false;        // it seems: no code until control gets there
};

// Of the unit that is to be translated again, the blocks that have run.
std::vector<bool> blocks_that_ran(const Unit& unit, const Renewal& renewal);
// Their size, as the program has them.
uint32_t bytes_that_ran(const Unit& unit, const Renewal& renewal);

}  // namespace tally::engine
