// See flow_index.h.
#include "profile/flow_index.h"

#include <algorithm>

namespace tally::profile {

template <class Row, class Key>
FlowIndex::Groups FlowIndex::group(const std::vector<Row>& rows, size_t keys, Key key) {
  Groups groups;
  groups.starts.assign(keys + 1, 0);
  for (const Row& row : rows) ++groups.starts[key(row) + 1];
  for (size_t k = 0; k < keys; ++k) groups.starts[k + 1] += groups.starts[k];
  groups.items.resize(rows.size());
  std::vector<uint32_t> next(groups.starts.begin(), groups.starts.end() - 1);
  for (size_t i = 0; i < rows.size(); ++i) {
    groups.items[next[key(rows[i])]++] = static_cast<uint32_t>(i);
  }
  return groups;
}

FlowIndex::FlowIndex(const Profile& profile) : profile_(profile) {
  const size_t blocks = profile.blocks.size();
  from_ = group(profile.edges, blocks, [](const Edge& edge) { return edge.from_block; });
  to_ = group(profile.edges, blocks, [](const Edge& edge) { return edge.to_block; });
  abnormal_ = group(profile.abnormal, blocks, [](const Abnormal& term) { return term.block; });
  blocks_ = group(profile.blocks, profile.procedures.size(),
                  [](const Block& block) { return block.procedure_id; });
  for (size_t procedure = 0; procedure < profile.procedures.size(); ++procedure) {
    std::sort(blocks_.items.begin() + blocks_.starts[procedure],
              blocks_.items.begin() + blocks_.starts[procedure + 1], [&](uint32_t a, uint32_t b) {
                return profile.blocks[a].address < profile.blocks[b].address;
              });
  }
}

std::optional<uint32_t> FlowIndex::entry_block(uint32_t procedure) const {
  const std::span<const uint32_t> found = entry_blocks(procedure);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

std::span<const uint32_t> FlowIndex::entry_blocks(uint32_t procedure) const {
  const LinkAddr entry = profile_.procedures[procedure].entry;
  const std::span<const uint32_t> blocks = blocks_of(procedure);
  const auto begin = std::partition_point(blocks.begin(), blocks.end(), [&](uint32_t block) {
    return profile_.blocks[block].address < entry;
  });
  const auto end = std::partition_point(
      begin, blocks.end(), [&](uint32_t block) { return profile_.blocks[block].address == entry; });
  return {begin, end};
}

}  // namespace tally::profile
