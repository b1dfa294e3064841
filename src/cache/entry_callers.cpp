// See entry_callers.h.
#include "cache/entry_callers.h"

#include <algorithm>
#include <utility>

namespace tally::engine {

namespace {

struct Way {
  uint32_t to = 0;
  uint64_t times = 0;
};
using Ways = std::vector<std::vector<Way>>;  // by procedure

// Procedures in such an order that few ways lead back.
class Order {
 public:
  explicit Order(const Ways& ways) : ways_(ways), part_(ways.size(), 0), at_(ways.size()) {
    std::vector<uint32_t> all(ways.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    put(all, 0);
  }
  const std::vector<uint32_t>& result() const { return result_; }

 private:
  struct At {
    uint32_t number = 0, lowest = 0;  // from 1 on; 0: not seen yet
    size_t next = 0;                  // of its ways
    bool on_path = false;
  };

  // Parts of `members` that lead to each other by ways that were taken at least so often.
  void put(const std::vector<uint32_t>& members, uint64_t least) {
    const uint32_t part = ++parts_;
    for (const uint32_t member : members) {
      part_[member] = part;
      at_[member] = {};
    }
    std::vector<std::vector<uint32_t>> found;
    numbered_ = 0;
    for (const uint32_t member : members) {
      if (at_[member].number == 0) search(member, least, found);
    }
    // Whoever is found first leads to nobody that is found later.
    constexpr uint64_t kFactor = 4;
    for (size_t i = found.size(); i-- > 0;) {
      if (found[i].size() == 1) {
        result_.push_back(found[i].front());
      } else {
        put(found[i], least == 0 ? 1 : least * kFactor);
      }
    }
  }

  void enter(uint32_t node) {
    at_[node].number = at_[node].lowest = ++numbered_;
    at_[node].on_path = true;
    path_.push_back(node);
    open_.push_back(node);
  }

  // Tarjan, "Depth-first search and linear graph algorithms", 1972, without recursion: chains of
  // calls are long.
  void search(uint32_t start, uint64_t least, std::vector<std::vector<uint32_t>>& found) {
    enter(start);
    while (!open_.empty()) {
      const uint32_t node = open_.back();
      At& at = at_[node];
      if (at.next < ways_[node].size()) {
        const Way& way = ways_[node][at.next++];
        if (way.times < least || part_[way.to] != part_[node]) continue;
        if (at_[way.to].number == 0) {
          enter(way.to);
        } else if (at_[way.to].on_path) {
          at.lowest = std::min(at.lowest, at_[way.to].number);
        }
        continue;
      }
      open_.pop_back();
      if (!open_.empty()) {
        uint32_t& lowest = at_[open_.back()].lowest;
        lowest = std::min(lowest, at.lowest);
      }
      if (at.lowest != at.number) continue;
      std::vector<uint32_t>& members = found.emplace_back();
      do {
        members.push_back(path_.back());
        at_[path_.back()].on_path = false;
        path_.pop_back();
      } while (members.back() != node);
    }
  }

  const Ways& ways_;
  std::vector<uint32_t> part_;  // by node: the one that it was put into last
  std::vector<At> at_;
  std::vector<uint32_t> path_, open_;
  uint32_t parts_ = 0, numbered_ = 0;
  std::vector<uint32_t> result_;
};

}  // namespace

void EntryCallers::add(uint32_t module, uint64_t entry, bool may, uint64_t entries,
                       std::span<const Branch> branches) {
  branches_.insert(branches_.end(), branches.begin(), branches.end());
  procedures_.push_back({module, entry, may, entries, branches_.size()});
}

std::vector<uint32_t> EntryCallers::ranks() const {
  std::vector<std::pair<std::pair<uint32_t, uint64_t>, uint32_t>> by_entry;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    by_entry.push_back({{procedures_[i].module, procedures_[i].entry}, i});
  }
  std::ranges::sort(by_entry);
  std::vector<bool> may(procedures_.size());
  for (uint32_t i = 0; i < may.size(); ++i) may[i] = procedures_[i].may;
  for (size_t i = 1; i < by_entry.size(); ++i) {
    // Callers could not tell them apart.
    if (by_entry[i - 1].first != by_entry[i].first) continue;
    may[by_entry[i - 1].second] = may[by_entry[i].second] = false;
  }
  Ways ways(procedures_.size());
  size_t b = 0;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    for (; b < procedures_[i].branches_end; ++b) {
      const std::pair entry{procedures_[i].module, branches_[b].target};
      const auto to = std::ranges::lower_bound(by_entry, std::pair{entry, uint32_t{0}});
      if (to == by_entry.end() || to->first != entry) continue;
      ways[i].push_back({to->second, branches_[b].times});
    }
  }
  const Order order(ways);
  // From the last to the first: it is known then which ways lead back and need a counter.
  std::vector<uint32_t> ranks(procedures_.size(), 0);
  std::vector<uint64_t> back(procedures_.size(), 0);
  std::vector<uint32_t> place(procedures_.size());
  for (uint32_t i = 0; i < place.size(); ++i) place[order.result()[i]] = i;
  for (size_t i = place.size(); i-- > 0;) {
    const uint32_t one = order.result()[i];
    uint64_t counted = back[one];
    for (const Way& way : ways[one]) {
      if (way.to == one) counted += way.times;
    }
    // A counter for each of them, where one more edge of the procedure needs none.
    constexpr uint64_t kWorthIt = 2;
    if (!may[one] || counted * kWorthIt > procedures_[one].entries) continue;
    ranks[one] = static_cast<uint32_t>(i + 1);
    for (const Way& way : ways[one]) {
      if (place[way.to] < i) back[way.to] += way.times;
    }
  }
  return ranks;
}

}  // namespace tally::engine
