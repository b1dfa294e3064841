// Which edges get a counter: those outside a maximum spanning tree.
//
// Problem (section 3.1).  A set of counted edges determines all others if and only if the uncounted
// ones contain no cycle, whatever the edges' directions.  Counting should cost as little as
// possible, so the uncounted edges should weigh as much as possible.
//
// Idea.  Kruskal's algorithm: take the edges from the heaviest to the lightest and leave each
// uncounted unless it would close a cycle.  Before that, EXIT->root is put in the tree, since
// there is no code to count it in; and measured edges are left out of the whole affair, since
// their counts come for free and an edge less in the tree is an edge less to derive.
//
// The plan must not vary from run to run: among edges of equal weight the one with the lower
// EdgeId goes into the tree and the one with the higher is counted.
#include <algorithm>
#include <bit>
#include <functional>

#include "placement/placement.h"

namespace tally::placement {
namespace {

// Union-find with path halving and union by size.
class Components {
 public:
  explicit Components(uint32_t count) : parent_(count, -1) {}

  // False if the two were connected already.
  bool join(NodeId a, NodeId b) {
    a = find(a);
    b = find(b);
    if (a == b) return false;
    if (parent_[a] > parent_[b]) std::swap(a, b);  // the larger one's is the smaller number
    parent_[a] += parent_[b];
    parent_[b] = static_cast<int32_t>(a);
    return true;
  }

 private:
  NodeId find(NodeId node) {
    while (parent_[node] >= 0) {
      const auto parent = static_cast<NodeId>(parent_[node]);
      if (parent_[parent] < 0) return parent;
      parent_[node] = parent_[parent];
      node = static_cast<NodeId>(parent_[node]);
    }
    return node;
  }

  std::vector<int32_t> parent_;  // of a root: the number of its nodes, negative
};

// A weight and an edge in one number, which sorts twice as fast as two: above, the bits of a number
// that is not negative, which are in the order of the numbers; below, the edge, the lower the more.
// What a weight loses of its precision (a millionth is left of it) decides nothing.
constexpr unsigned kEdgeBits = 32;

uint64_t candidate_of(double weight, EdgeId edge) {
  const uint64_t bits = std::bit_cast<uint64_t>(weight + 0.0) >> kEdgeBits;
  return bits << kEdgeBits | static_cast<EdgeId>(~edge);
}
EdgeId edge_of(uint64_t candidate) {
  return ~static_cast<EdgeId>(candidate);
}

void check_edge(const Graph& graph, const Edge& edge) {
  CHECK(edge.from < graph.node_count && edge.to < graph.node_count)
      << "edge " << edge.from << "->" << edge.to << " of " << graph.node_count << " nodes";
  CHECK(edge.weight >= 0) << "edge " << edge.from << "->" << edge.to << " weighs " << edge.weight;
  CHECK(edge.role != EdgeRole::kVirtual || (edge.from == graph.exit && edge.to == graph.root))
      << "virtual edge " << edge.from << "->" << edge.to << " is not EXIT->root";
}

Plan place_on_nodes(const Graph& graph) {
  Plan plan;
  plan.mode = Mode::kBlocks;
  plan.node_counted.assign(graph.node_count, true);
  plan.node_counted[graph.exit] = false;
  for (const Edge& edge : graph.edges) {
    if (edge.to != graph.exit) plan.cost += edge.weight;
  }
  return plan;
}

Plan place_on_edges(const Graph& graph) {
  Plan plan;
  plan.mode = Mode::kEdges;
  plan.edge_counted.assign(graph.edges.size(), false);
  Components tree(graph.node_count);
  std::vector<uint64_t> candidates;
  candidates.reserve(graph.edges.size());
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    const Edge& edge = graph.edges[id];
    if (edge.role == EdgeRole::kVirtual) {
      CHECK(tree.join(edge.from, edge.to)) << "two virtual edges: their sum alone is determined";
    } else if (edge.role == EdgeRole::kNormal) {
      candidates.push_back(candidate_of(edge.weight, id));
    }
  }
  std::ranges::sort(candidates, std::ranges::greater());
  for (const uint64_t candidate : candidates) {
    const EdgeId id = edge_of(candidate);
    const Edge& edge = graph.edges[id];
    if (tree.join(edge.from, edge.to)) continue;
    plan.edge_counted[id] = true;
    plan.cost += edge.weight;
  }
  return plan;
}

}  // namespace

Plan place_counters(const Graph& graph, Mode mode) {
  CHECK(graph.root < graph.node_count && graph.exit < graph.node_count && graph.root != graph.exit)
      << "root " << graph.root << ", exit " << graph.exit << " of " << graph.node_count;
  CHECK(graph.node_count <= uint32_t{1} << 31) << graph.node_count << " nodes";
  for (const Edge& edge : graph.edges) check_edge(graph, edge);
  return mode == Mode::kBlocks ? place_on_nodes(graph) : place_on_edges(graph);
}

}  // namespace tally::placement
