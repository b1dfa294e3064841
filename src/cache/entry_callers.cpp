// See entry_callers.h.
#include "cache/entry_callers.h"

#include <algorithm>
#include <utility>

namespace tally::engine {

namespace {

// Procedures in such an order that few ways lead back.
class Order {
 public:
  using Ways = EntryCallers::Ways;
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
      if (found[i].size() == 1 || least > UINT64_MAX / kFactor) {
        result_.insert(result_.end(), found[i].begin(), found[i].end());
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
        const EntryCallers::Way& way = ways_[node][at.next++];
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

// Those that may, and what all lead to.  Of several at one address callers could not tell which
// they enter.
EntryCallers::Graph EntryCallers::graph() const {
  std::vector<std::pair<std::pair<uint32_t, uint64_t>, uint32_t>> by_entry;
  Graph graph;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    by_entry.push_back({{procedures_[i].module, procedures_[i].entry}, i});
    graph.may.push_back(procedures_[i].may);
  }
  std::ranges::sort(by_entry);
  for (size_t i = 1; i < by_entry.size(); ++i) {
    if (by_entry[i - 1].first != by_entry[i].first) continue;
    graph.may[by_entry[i - 1].second] = graph.may[by_entry[i].second] = false;
  }
  graph.ways.resize(procedures_.size());
  size_t b = 0;
  for (uint32_t i = 0; i < procedures_.size(); ++i) {
    for (; b < procedures_[i].branches_end; ++b) {
      const std::pair entry{procedures_[i].module, branches_[b].target};
      const auto to = std::ranges::lower_bound(by_entry, std::pair{entry, uint32_t{0}});
      if (to == by_entry.end() || to->first != entry) continue;
      graph.ways[i].push_back({to->second, branches_[b].times});
    }
  }
  for (const Led& led : led_) graph.ways[led.from].push_back(led.way);
  return graph;
}

// Who leaves entries to callers if ways lead back that do so from a later procedure of the order.
// From the last to the first: it is known then which these are.
std::vector<bool> EntryCallers::choose(const Graph& graph, std::span<const uint32_t> order,
                                       std::span<const uint32_t> place) const {
  std::vector<bool> left(procedures_.size(), false);
  std::vector<uint64_t> counted(procedures_.size(), 0);  // by ways back
  for (size_t i = order.size(); i-- > 0;) {
    const uint32_t one = order[i];
    for (const Way& way : graph.ways[one]) {
      if (way.to == one && !way.by_pointer) counted[one] += way.times;
    }
    // A counter for each of them, where one more edge of the procedure needs none.
    constexpr uint64_t kWorthIt = 2;
    if (!graph.may[one] || counted[one] * kWorthIt > procedures_[one].entries) continue;
    left[one] = true;
    for (const Way& way : graph.ways[one]) {
      if (place[way.to] < i && !way.by_pointer) counted[way.to] += way.times;
    }
  }
  return left;
}

std::vector<uint32_t> EntryCallers::ranks() const {
  const Graph graph = this->graph();
  const std::vector<uint32_t> order = Order(graph.ways).result();
  std::vector<uint32_t> place(order.size());
  for (uint32_t i = 0; i < place.size(); ++i) place[order[i]] = i;
  const std::vector<bool> left = choose(graph, order, place);
  // As low as can be, so that many have the same.
  std::vector<uint32_t> ranks(order.size(), 0);
  for (const uint32_t one : order) {
    if (!left[one]) continue;
    ranks[one] = std::max(ranks[one], 1u);
    for (const Way& way : graph.ways[one]) {
      const bool ahead = place[way.to] > place[one] && left[way.to];
      if (ahead) ranks[way.to] = std::max(ranks[way.to], ranks[one] + 1);
    }
  }
  return ranks;
}

}  // namespace tally::engine
