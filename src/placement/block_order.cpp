// See block_order.h.
#include "placement/block_order.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tally::placement {
namespace {

constexpr NodeId kNone = std::numeric_limits<NodeId>::max();

class Orderer {
 public:
  Orderer(const Graph& graph, const std::vector<bool>& may_fall)
      : graph_(graph),
        may_fall_(may_fall),
        heat_(graph.node_count, 0),
        next_(graph.node_count, kNone),
        has_before_(graph.node_count, false),
        other_end_(graph.node_count) {
    for (NodeId node = 0; node < graph.node_count; ++node) other_end_[node] = node;
  }

  BlockOrder order() {
    take_heat();
    join_chains();
    BlockOrder result;
    result.nodes.reserve(graph_.node_count);
    for (const NodeId head : hot_chains()) {
      for (NodeId node = head; node != kNone; node = next_[node]) result.nodes.push_back(node);
    }
    result.hot = static_cast<uint32_t>(result.nodes.size());
    for (NodeId node = 0; node < graph_.node_count; ++node) {
      if (heat_[node] < kRan && node != graph_.exit) result.nodes.push_back(node);
    }
    return result;
  }

 private:
  // A node is as hot as the heaviest edge at it: every run of it has come or gone along one.
  void take_heat() {
    for (const Edge& edge : graph_.edges) {
      heat_[edge.from] = std::max(heat_[edge.from], edge.weight);
      heat_[edge.to] = std::max(heat_[edge.to], edge.weight);
    }
    heat_[graph_.root] = std::max(heat_[graph_.root], kRan);
    heat_[graph_.exit] = 0;
  }

  // Of edges alike, those stay together that lie together.
  bool before(EdgeId a, EdgeId b) const {
    const Edge& one = graph_.edges[a];
    const Edge& other = graph_.edges[b];
    if (one.weight != other.weight) return one.weight > other.weight;
    const bool adjacent = one.to == one.from + 1;
    if (adjacent != (other.to == other.from + 1)) return adjacent;
    return a < b;
  }

  void join_chains() {
    has_before_[graph_.root] = true;
    std::vector<EdgeId> edges;
    for (EdgeId id = 0; id < graph_.edges.size(); ++id) {
      const Edge& edge = graph_.edges[id];
      const bool inside = edge.from != graph_.exit && edge.to != graph_.exit;
      if (may_fall_[id] && inside && edge.weight >= kRan) edges.push_back(id);
    }
    std::ranges::sort(edges, [&](EdgeId a, EdgeId b) { return before(a, b); });
    for (const EdgeId id : edges) join(graph_.edges[id].from, graph_.edges[id].to);
  }

  // The two ends of a chain know each other.
  void join(NodeId end, NodeId begin) {
    if (next_[end] != kNone || has_before_[begin] || other_end_[end] == begin) return;
    next_[end] = begin;
    has_before_[begin] = true;
    const NodeId head = other_end_[end];
    const NodeId tail = other_end_[begin];
    other_end_[head] = tail;
    other_end_[tail] = head;
  }

  // Their heads, in the order in which they lie.
  std::vector<NodeId> hot_chains() const {
    struct Chain {
      double heat;
      NodeId head;
    };
    std::vector<Chain> chains;
    for (NodeId head = 0; head < graph_.node_count; ++head) {
      const bool is_head = heat_[head] >= kRan && (head == graph_.root || !has_before_[head]);
      if (!is_head) continue;
      double heat = head == graph_.root ? std::numeric_limits<double>::infinity() : 0;
      for (NodeId node = head; node != kNone; node = next_[node]) {
        heat = std::max(heat, heat_[node]);
      }
      chains.push_back({heat, head});
    }
    std::ranges::stable_sort(chains, std::ranges::greater(), &Chain::heat);
    std::vector<NodeId> heads;
    heads.reserve(chains.size());
    for (const Chain& chain : chains) heads.push_back(chain.head);
    return heads;
  }

  const Graph& graph_;
  const std::vector<bool>& may_fall_;
  std::vector<double> heat_;       // by NodeId
  std::vector<NodeId> next_;       // the node that follows in the chain
  std::vector<bool> has_before_;   // the root, which has nothing in front of it, too
  std::vector<NodeId> other_end_;  // of a chain's first node the last one, and the reverse
};

}  // namespace

BlockOrder order_blocks(const Graph& graph, const std::vector<bool>& may_fall) {
  CHECK(may_fall.size() == graph.edges.size()) << may_fall.size() << " of " << graph.edges.size();
  BlockOrder result = Orderer(graph, may_fall).order();
  CHECK(result.nodes.size() + 1 == graph.node_count)
      << result.nodes.size() << " nodes in order, of " << graph.node_count;
  return result;
}

}  // namespace tally::placement
