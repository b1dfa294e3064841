// Which block begins at an address?
//
// Problem.  A large program has half a million blocks, most of which nobody ever asks for.  A hash
// table of all their addresses is filled, grown and missed in the processor's caches again and
// again (a tenth of the monitor's time in cc1), though a unit's blocks are sorted already.
//
// Idea.  The table holds the entries of procedures, which is what calls ask for, and what differs
// from the rule below: blocks that are gone, and blocks made again in their place.  Any other block
// is searched for in the few units that have a part of its page.
//
// Of two blocks at one address the later one counts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/flat_map.h"
#include "cfg/procedure.h"

namespace tally::engine {

class BlockMap {
 public:
  // What `set` was told, or unit << 32 | block.
  std::optional<uint64_t> find(uint64_t address) const {
    if (const uint64_t* found = singles_.find(address)) return *found;
    const uint32_t* first = pages_.find(address >> kPageBits);
    for (uint32_t i = first == nullptr ? 0 : *first; i != 0; i = parts_[i - 1].next) {
      const Part& part = parts_[i - 1];
      if (address < part.base) continue;
      const cfg::BlockIndex block = block_in(*part.procedure, address - part.base);
      if (block != cfg::kExitBlock) return static_cast<uint64_t>(part.unit) << 32 | block;
    }
    return std::nullopt;
  }

  void set(uint64_t address, uint64_t value) { singles_.set(address, value); }

  // `procedure`, which must stay where it is as long as anybody asks, has blocks, in order;
  // a link address is `bias` less than where the block is.
  void add(uint32_t unit, const cfg::Procedure& procedure, uint64_t bias) {
    const uint64_t base = procedure.range.begin.value() + bias;
    for_each_page(procedure, bias, [&](uint64_t page) {
      const uint32_t* first = pages_.find(page);
      parts_.push_back({base, &procedure, unit, first == nullptr ? 0 : *first});
      pages_.set(page, static_cast<uint32_t>(parts_.size()));
    });
    const auto number = [&](uint32_t block) { return static_cast<uint64_t>(unit) << 32 | block; };
    for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
      if (uint64_t* single = singles_.find(base + procedure.blocks[b].offset)) *single = number(b);
    }
    const uint32_t entry = procedure.entry_block;
    if (entry != cfg::kExitBlock) set(base + procedure.blocks[entry].offset, number(entry));
  }

  // Its blocks, which must have been `set` otherwise, are not searched for any more: code that is
  // made anew again and again would have ever more units.
  void remove(uint32_t unit, const cfg::Procedure& procedure, uint64_t bias) {
    for_each_page(procedure, bias, [&](uint64_t page) {
      uint32_t* link = pages_.find(page);
      while (link != nullptr && *link != 0 && parts_[*link - 1].unit != unit) {
        link = &parts_[*link - 1].next;
      }
      if (link != nullptr && *link != 0) *link = parts_[*link - 1].next;
    });
  }

 private:
  static constexpr unsigned kPageBits = 12;
  struct Part {
    uint64_t base;  // where the procedure's range begins
    const cfg::Procedure* procedure;
    uint32_t unit;
    uint32_t next;  // of the same page: index in `parts_` + 1; 0: none
  };

  template <class Visit>
  static void for_each_page(const cfg::Procedure& procedure, uint64_t bias, Visit visit) {
    const uint64_t base = procedure.range.begin.value() + bias;
    const uint64_t last = (base + procedure.blocks.back().offset) >> kPageBits;
    for (uint64_t page = (base + procedure.blocks.front().offset) >> kPageBits; page <= last;
         ++page) {
      visit(page);
    }
  }

  static cfg::BlockIndex block_in(const cfg::Procedure& procedure, uint64_t offset) {
    const auto& blocks = procedure.blocks;
    const auto it = std::ranges::lower_bound(blocks, offset, {}, &cfg::Block::offset);
    if (it == blocks.end() || it->offset != offset) return cfg::kExitBlock;
    return static_cast<cfg::BlockIndex>(it - blocks.begin());
  }

  FlatMap<uint64_t> singles_;  // by address
  FlatMap<uint32_t> pages_;    // first part + 1
  std::vector<Part> parts_;
};

}  // namespace tally::engine
