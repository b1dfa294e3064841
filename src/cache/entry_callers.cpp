// See entry_callers.h.
#include "cache/entry_callers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace tally::engine {

namespace {

// Tarjan, "Depth-first search and linear graph algorithms", 1972: a node that is not alone in its
// component, or leads to itself, is on a circle.  Without recursion: call graphs are deep.
class Circles {
 public:
  explicit Circles(const std::vector<std::vector<uint32_t>>& ways)
      : ways_(ways), number_(ways.size(), 0), lowest_(ways.size(), 0), next_(ways.size(), 0) {
    on_path_.assign(ways.size(), false);
    on_circle_.assign(ways.size(), false);
    for (uint32_t node = 0; node < ways.size(); ++node) {
      if (number_[node] == 0) search(node);
    }
  }
  bool has(uint32_t node) const { return on_circle_[node]; }

 private:
  void enter(uint32_t node) {
    number_[node] = lowest_[node] = ++numbered_;
    path_.push_back(node);
    on_path_[node] = true;
    open_.push_back(node);
  }
  void search(uint32_t start) {
    enter(start);
    while (!open_.empty()) {
      const uint32_t node = open_.back();
      if (next_[node] < ways_[node].size()) {
        const uint32_t to = ways_[node][next_[node]++];
        if (to == node) on_circle_[node] = true;
        if (number_[to] == 0) {
          enter(to);
        } else if (on_path_[to]) {
          lowest_[node] = std::min(lowest_[node], number_[to]);
        }
        continue;
      }
      open_.pop_back();
      if (!open_.empty()) lowest_[open_.back()] = std::min(lowest_[open_.back()], lowest_[node]);
      if (lowest_[node] == number_[node]) close(node);
    }
  }
  void close(uint32_t node) {
    const bool alone = path_.back() == node;
    for (uint32_t member = node + 1; member != node;) {
      member = path_.back();
      path_.pop_back();
      on_path_[member] = false;
      if (!alone) on_circle_[member] = true;
    }
  }

  const std::vector<std::vector<uint32_t>>& ways_;
  std::vector<uint32_t> number_, lowest_;  // from 1 on
  std::vector<size_t> next_;               // by node: of its ways
  std::vector<uint32_t> path_, open_;
  std::vector<bool> on_path_, on_circle_;
  uint32_t numbered_ = 0;
};

}  // namespace

void EntryCallers::add(uint32_t module, uint64_t entry, bool may,
                       const std::vector<uint64_t>& targets) {
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  procedures_.push_back({module, entry, may, targets_.size()});
}

// From each to those that it leads to, among all that were added.
std::vector<std::vector<uint32_t>> EntryCallers::ways() const {
  std::vector<std::pair<std::pair<uint32_t, uint64_t>, uint32_t>> by_entry;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    by_entry.push_back({{procedures_[i].module, procedures_[i].entry}, i});
  }
  std::ranges::sort(by_entry);
  std::vector<std::vector<uint32_t>> ways(procedures_.size());
  size_t t = 0;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    for (; t < procedures_[i].targets_end; ++t) {
      const std::pair entry{procedures_[i].module, targets_[t]};
      auto to = std::ranges::lower_bound(by_entry, std::pair{entry, uint32_t{0}});
      for (; to != by_entry.end() && to->first == entry; ++to) ways[i].push_back(to->second);
    }
  }
  return ways;
}

std::vector<bool> EntryCallers::choose() const {
  const std::vector<std::vector<uint32_t>> ways = this->ways();
  const Circles circles(ways);
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> at;  // how many begin there
  for (const Procedure& one : procedures_) at[{one.module, one.entry}] += 1;
  std::vector<bool> chosen;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    const Procedure& one = procedures_[i];
    chosen.push_back(one.may && !circles.has(i) && at[{one.module, one.entry}] == 1);
  }
  return chosen;
}

}  // namespace tally::engine
