// See dumps.h.
#include "report/dumps.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "profile/counts.h"
#include "report/table.h"

namespace tally::report {
namespace {

using profile::CountSource;
using profile::Profile;
using profile::WideCount;

// Modules in the order of the dumps.  Two mappings of one file (same path and build-id) get the
// same rank, and their counts are summed.
class ModuleOrder {
 public:
  explicit ModuleOrder(const Profile& profile) : ranks_(profile.modules.size()) {
    using Key = std::pair<std::string_view, std::string_view>;
    std::vector<std::pair<Key, uint32_t>> keys;
    for (const profile::Module& module : profile.modules) {
      keys.push_back({{module.path, module.build_id}, module.id});
    }
    std::sort(keys.begin(), keys.end());
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i == 0 || keys[i].first != keys[i - 1].first) modules_.push_back(keys[i].second);
      ranks_[keys[i].second] = static_cast<uint32_t>(modules_.size() - 1);
    }
  }
  uint32_t rank(uint32_t module) const { return ranks_[module]; }
  uint32_t module(uint32_t rank) const { return modules_[rank]; }
  size_t size() const { return modules_.size(); }

 private:
  std::vector<uint32_t> ranks_;
  std::vector<uint32_t> modules_;
};

uint32_t module_of(const Profile& profile, uint32_t block) {
  return profile.procedures[profile.blocks[block].procedure_id].module_id;
}

struct CountAt {
  LinkAddr address;
  WideCount count = 0;
};

void append_instructions(const profile::Block& block, std::vector<CountAt>& counts) {
  LinkAddr address = block.address;
  const std::vector<__int128> values = profile::instruction_counts(block);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] > 0) counts.push_back({address, static_cast<WideCount>(values[i])});
    address += block.instruction_sizes[i];
  }
}

// Sorts by address and adds up what is at the same one.
void sum_equal(std::vector<CountAt>& counts) {
  std::sort(counts.begin(), counts.end(),
            [](const CountAt& a, const CountAt& b) { return a.address < b.address; });
  size_t kept = 0;
  for (const CountAt& next : counts) {
    if (kept > 0 && counts[kept - 1].address == next.address) {
      counts[kept - 1].count += next.count;
    } else {
      counts[kept++] = next;
    }
  }
  counts.resize(kept);
}

struct EdgeRow {
  uint32_t from_module = 0;  // rank
  LinkAddr from;
  uint32_t to_module = 0;  // rank
  LinkAddr to;
  profile::EdgeKind kind = profile::EdgeKind::kFallthrough;
  WideCount count = 0;
  CountSource source = CountSource::kMeasured;
  auto key() const { return std::tuple(from_module, from, to_module, to, kind); }
};

std::vector<EdgeRow> sorted_edges(const Profile& profile, const ModuleOrder& order) {
  std::vector<EdgeRow> rows;
  rows.reserve(profile.edges.size());
  for (const profile::Edge& edge : profile.edges) {
    rows.push_back({order.rank(module_of(profile, edge.from_block)),
                    profile.blocks[edge.from_block].address,
                    order.rank(module_of(profile, edge.to_block)),
                    profile.blocks[edge.to_block].address, edge.kind, edge.count, edge.source});
  }
  std::sort(rows.begin(), rows.end(),
            [](const EdgeRow& a, const EdgeRow& b) { return a.key() < b.key(); });
  size_t kept = 0;
  for (const EdgeRow& next : rows) {
    if (kept > 0 && rows[kept - 1].key() == next.key()) {
      rows[kept - 1].count += next.count;
      // The enumerators are ordered from best to worst.
      rows[kept - 1].source = std::max(rows[kept - 1].source, next.source);
    } else {
      rows[kept++] = next;
    }
  }
  rows.resize(kept);
  return rows;
}

LinkAddr last_instruction(const profile::Block& block) {
  return block.address + (block.size_bytes() - block.instruction_sizes.back());
}

}  // namespace

DumpGaps dump_instructions(const Profile& profile, Format format, Output& output) {
  DumpGaps gaps;
  const ModuleOrder order(profile);
  std::vector<std::vector<CountAt>> by_module(order.size());
  for (const profile::Block& block : profile.blocks) {
    if (block.source == CountSource::kUnknown) {
      ++gaps.unknown;
      continue;
    }
    append_instructions(block, by_module[order.rank(module_of(profile, block.id))]);
  }
  TableWriter table(output, format,
                    {{"module", -40}, {"build_id", -40}, {"address", 12}, {"count", 16}});
  for (uint32_t rank = 0; rank < order.size() && !output.closed(); ++rank) {
    const profile::Module& module = profile.modules[order.module(rank)];
    sum_equal(by_module[rank]);
    for (const CountAt& at : by_module[rank]) {
      if (output.closed()) break;
      table.row({module.path, module.build_id, at.address, at.count});
    }
  }
  table.finish();
  return gaps;
}

void dump_edges(const Profile& profile, Format format, Output& output) {
  const ModuleOrder order(profile);
  TableWriter table(output, format,
                    {{"module", -40},
                     {"from_block", 12},
                     {"to_module", -40},
                     {"to_block", 12},
                     {"kind", -13},
                     {"count", 16},
                     {"source", -8}});
  for (const EdgeRow& row : sorted_edges(profile, order)) {
    if (output.closed()) break;
    table.row({profile.modules[order.module(row.from_module)].path, row.from,
               profile.modules[order.module(row.to_module)].path, row.to, to_string(row.kind),
               row.count, to_string(row.source)});
  }
  table.finish();
}

void dump_blocks(const Profile& profile, Format format, Output& output) {
  const ModuleOrder order(profile);
  std::vector<uint32_t> blocks(profile.blocks.size());
  std::iota(blocks.begin(), blocks.end(), 0u);
  std::sort(blocks.begin(), blocks.end(), [&](uint32_t a, uint32_t b) {
    const auto key = [&](uint32_t id) {
      const profile::Block& block = profile.blocks[id];
      return std::tuple(order.rank(module_of(profile, id)), block.address, block.size_bytes(),
                        profile.procedures[block.procedure_id].entry, id);
    };
    return key(a) < key(b);
  });
  TableWriter table(output, format,
                    {{"module", -40},
                     {"block", 12},
                     {"size_bytes", 10},
                     {"instructions", 12},
                     {"last_instruction", 16},
                     {"count", 16},
                     {"source", -8},
                     {"procedure", 12}});
  for (uint32_t id : blocks) {
    if (output.closed()) break;
    const profile::Block& block = profile.blocks[id];
    table.row({profile.modules[module_of(profile, id)].path, block.address, block.size_bytes(),
               uint64_t{block.instruction_sizes.size()}, last_instruction(block), block.count,
               to_string(block.source), profile.procedures[block.procedure_id].entry});
  }
  table.finish();
}

}  // namespace tally::report
