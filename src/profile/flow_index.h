// Edges by the blocks they leave and enter, and the entry block of each procedure.
//
// A profile lists its edges in one row; checks and reports want those around one block.  Built once
// in linear time, it refers to the profile it was built from, which must be valid and outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "profile/model.h"

namespace tally::profile {

class FlowIndex {
 public:
  explicit FlowIndex(const Profile& profile);

  // Indexes into Profile::edges, in the order of the profile.
  std::span<const uint32_t> edges_from(uint32_t block) const { return row(from_, block); }
  std::span<const uint32_t> edges_to(uint32_t block) const { return row(to_, block); }
  // Indexes into Profile::abnormal.
  std::span<const uint32_t> abnormal_at(uint32_t block) const { return row(abnormal_, block); }
  // Blocks of a procedure, sorted by address.
  std::span<const uint32_t> blocks_of(uint32_t procedure) const { return row(blocks_, procedure); }
  // The block at the procedure's entry, if it was ever discovered.
  std::optional<uint32_t> entry_block(uint32_t procedure) const;
  // The same; in a sum of runs that cut the code differently there may be several.
  std::span<const uint32_t> entry_blocks(uint32_t procedure) const;

 private:
  // Items grouped by key: those of key k are items[starts[k]] up to items[starts[k + 1]].
  struct Groups {
    std::vector<uint32_t> starts;
    std::vector<uint32_t> items;
  };
  template <class Row, class Key>
  static Groups group(const std::vector<Row>& rows, size_t keys, Key key);
  static std::span<const uint32_t> row(const Groups& groups, uint32_t key) {
    return std::span(groups.items)
        .subspan(groups.starts[key], groups.starts[key + 1] - groups.starts[key]);
  }

  const Profile& profile_;
  Groups from_;
  Groups to_;
  Groups abnormal_;
  Groups blocks_;
};

}  // namespace tally::profile
