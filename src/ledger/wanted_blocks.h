// Which block is at an address that a direct branch leads to?  Asked when all is solved.
//
// Only the few addresses that somebody will ask for are kept: a table of all blocks of a large
// program takes longer to fill than all of its units take to solve.  So what is wanted is said
// first, then all blocks are shown, and those that nobody wants cost a look at one bit.  Modules
// that were unmapped meanwhile are found here too.
#pragma once

#include <cstdint>

#include "base/flat_map.h"
#include "base/sieve.h"
#include "cache/translated.h"

namespace tally::engine {

class WantedBlocks {
 public:
  // There will be about so many blocks; before anything is wanted.
  void expect(size_t blocks) { sieve_.reset(blocks); }
  // The addresses that the unit's branches lead to.
  void want_targets_of(const Unit& unit) {
    unit.for_each_branch_out([&](LinkAddr target) { want(*unit.module, target); });
  }
  void show(const Module& module, LinkAddr address, const BlockRef& ref) {
    if (!sieve_.may_have(module.key_of(address))) return;
    uint64_t* found = by_address_.find(module.key_of(address));
    // Of several generations the first: those after it were never linked to without a pair.
    if (found == nullptr || (module.from_memory && *found != kNoBlock)) return;
    *found =
        static_cast<uint64_t>(ref.unit) << 44 | static_cast<uint64_t>(ref.block) << 20 | ref.insn;
  }
  // Not valid where no block was shown.
  BlockRef find(const Module& module, LinkAddr address) const {
    const uint64_t* found = by_address_.find(module.key_of(address));
    if (found == nullptr || *found == kNoBlock) return {};
    return {static_cast<uint32_t>(*found >> 44), static_cast<uint32_t>(*found >> 20 & 0xffffff),
            static_cast<uint32_t>(*found & 0xfffff)};
  }

 private:
  static constexpr uint64_t kNoBlock = ~uint64_t{0};
  void want(const Module& module, LinkAddr address) {
    by_address_.set(module.key_of(address), kNoBlock);
    sieve_.add(module.key_of(address));
  }

  FlatMap<uint64_t> by_address_;
  Sieve sieve_;
};

}  // namespace tally::engine
