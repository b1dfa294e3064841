// Graphs, executions and an independent notion of "solvable" for the tests of src/placement.
//
// Nothing here uses a spanning tree or propagation: executions are walks that count as they go, and
// whether counts determine each other is asked of the flow equations by Gaussian elimination.  So
// an error in the room cannot hide behind the same error in its tests.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <utility>

#include "placement/placement.h"

namespace tally::placement {

using Random = std::mt19937_64;

// Repeat a failure with TALLY_SEED=<the seed that it printed>.
inline uint64_t first_seed() {
  const char* text = std::getenv("TALLY_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 0);
}

inline uint32_t below(Random& random, size_t limit) {
  return static_cast<uint32_t>(random() % limit);
}
inline bool one_in(Random& random, size_t limit) {
  return below(random, limit) == 0;
}

// Node 0 is the root, the last one EXIT; the first edge is EXIT->root.
inline Graph make_graph(uint32_t node_count, const std::vector<std::pair<NodeId, NodeId>>& edges) {
  Graph graph;
  graph.node_count = node_count;
  graph.exit = node_count - 1;
  graph.edges.push_back({.from = graph.exit, .to = graph.root, .role = EdgeRole::kVirtual});
  for (const auto& [from, to] : edges) graph.edges.push_back({.from = from, .to = to});
  return graph;
}

// Any shape: self loops, parallel edges, dead ends, unreachable nodes, irreducible loops; some
// edges measured, among them entries EXIT->B.
inline Graph random_graph(Random& random, uint32_t nodes_max) {
  const uint32_t nodes = 2 + below(random, nodes_max - 1);
  Graph graph = make_graph(nodes, {});
  const size_t edges = nodes / 2 + below(random, 2 * nodes + 1);
  for (size_t i = 0; i < edges; ++i) {
    Edge edge{.from = below(random, nodes - 1), .to = below(random, nodes)};
    if (one_in(random, 10)) edge.role = EdgeRole::kMeasured;
    graph.edges.push_back(edge);
  }
  while (one_in(random, 2)) {
    graph.edges.push_back(
        {.from = graph.exit, .to = below(random, nodes - 1), .role = EdgeRole::kMeasured});
  }
  std::swap(graph.edges[0], graph.edges[below(random, graph.edges.size())]);
  return graph;
}

inline void set_random_weights(Random& random, Graph& graph) {
  for (Edge& edge : graph.edges) edge.weight = below(random, 10);
}

// What really happened.
struct Truth {
  std::vector<uint64_t> edges;
  std::vector<uint64_t> nodes;
  std::vector<AbnormalFlow> abnormal;
};

// Walks through the graph and counts.  An execution begins at the root, at another entry or, out of
// turn, anywhere; it ends at EXIT or, out of turn, anywhere.
class Walker {
 public:
  Walker(const Graph& graph, Random& random)
      : graph_(graph), random_(random), out_(graph.node_count) {
    for (EdgeId id = 0; id < graph.edges.size(); ++id) out_[graph.edges[id].from].push_back(id);
    truth_.edges.resize(graph.edges.size());
    truth_.nodes.resize(graph.node_count);
  }

  Truth run(int executions, bool with_abnormal) {
    for (int i = 0; i < executions; ++i) walk(begin(with_abnormal), with_abnormal);
    return truth_;
  }

 private:
  NodeId begin(bool with_abnormal) {
    if (with_abnormal && one_in(random_, 5)) {
      const NodeId node = below(random_, graph_.node_count - 1);
      truth_.abnormal.push_back({.node = node, .entered = 1, .left = 0});
      ++truth_.nodes[node];
      return node;
    }
    return take(out_[graph_.exit]);
  }

  NodeId take(const std::vector<EdgeId>& choices) {
    const EdgeId edge = choices[below(random_, choices.size())];
    ++truth_.edges[edge];
    ++truth_.nodes[graph_.edges[edge].to];
    return graph_.edges[edge].to;
  }

  void walk(NodeId node, bool with_abnormal) {
    for (int step = 0; node != graph_.exit; ++step) {
      const bool stuck = out_[node].empty() || step == 300;
      if (stuck || (with_abnormal && one_in(random_, 50))) {
        truth_.abnormal.push_back({.node = node, .entered = 0, .left = 1});
        ++truth_.nodes[graph_.exit];
        return;
      }
      node = take(out_[node]);
    }
  }

  const Graph& graph_;
  Random& random_;
  std::vector<std::vector<EdgeId>> out_;
  Truth truth_;
};

// What the counters of `plan` would hold.
inline Measured measure(const Graph& graph, const Plan& plan, const Truth& truth) {
  Measured measured;
  measured.edges.resize(graph.edges.size());
  measured.nodes.resize(graph.node_count);
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    const bool counted = !plan.edge_counted.empty() && plan.edge_counted[id];
    if (counted || graph.edges[id].role == EdgeRole::kMeasured) {
      measured.edges[id] = truth.edges[id];
    }
  }
  for (NodeId node = 0; node < graph.node_count; ++node) {
    if (!plan.node_counted.empty() && plan.node_counted[node]) {
      measured.nodes[node] = truth.nodes[node];
    }
  }
  return measured;
}

// Empty if every count that the solution claims to know is true; otherwise the first that is not.
inline std::string first_difference(const Solution& solution, const Truth& truth) {
  for (size_t i = 0; i < truth.edges.size(); ++i) {
    const Count& count = solution.edges[i];
    if (count.origin != Origin::kUnknown && count.value != truth.edges[i]) {
      return fmt::format("edge {}: {} instead of {}", i, count.value, truth.edges[i]);
    }
  }
  for (size_t i = 0; i < truth.nodes.size(); ++i) {
    const Count& count = solution.nodes[i];
    if (count.origin != Origin::kUnknown && count.value != truth.nodes[i]) {
      return fmt::format("node {}: {} instead of {}", i, count.value, truth.nodes[i]);
    }
  }
  return "";
}

// Linear algebra on vectors with entries -1, 0, 1.  Those of flow equations are totally unimodular:
// eliminating with a pivot of 1 or -1 yields such vectors again, so integers suffice.
class Basis {
 public:
  // False, and no change, if `vector` depends on those added before.
  bool add(std::vector<int> vector) {
    reduce(vector);
    for (size_t i = 0; i < vector.size(); ++i) {
      if (vector[i] == 0) continue;
      EXPECT_EQ(std::abs(vector[i]), 1) << "not totally unimodular";
      rows_.push_back({i, std::move(vector)});
      return true;
    }
    return false;
  }
  bool spans(std::vector<int> vector) const {
    reduce(vector);
    for (const int entry : vector) {
      if (entry != 0) return false;
    }
    return true;
  }
  void remove_last() { rows_.pop_back(); }

 private:
  struct Row {
    size_t pivot;
    std::vector<int> vector;
  };
  void reduce(std::vector<int>& vector) const {
    for (const Row& row : rows_) {
      const int factor = vector[row.pivot] * row.vector[row.pivot];
      if (factor == 0) continue;
      for (size_t i = 0; i < vector.size(); ++i) vector[i] -= factor * row.vector[i];
    }
  }
  std::vector<Row> rows_;
};

// How the edge's count enters the conservation equations of the nodes.
inline std::vector<int> equation_column(const Graph& graph, EdgeId id) {
  std::vector<int> column(graph.node_count);
  ++column[graph.edges[id].to];
  --column[graph.edges[id].from];
  return column;
}

// EFreq(G, epl) of section 3.1, straight from its definition: the flow equations have one solution
// once the counted (and measured) edges are known.
inline bool solves_edge_frequencies(const Graph& graph, const std::vector<bool>& counted) {
  Basis unknown;
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    if (counted[id] || graph.edges[id].role == EdgeRole::kMeasured) continue;
    if (!unknown.add(equation_column(graph, id))) return false;
  }
  return true;
}

}  // namespace tally::placement
