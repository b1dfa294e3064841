// The chosen counters are the cheapest there are, against brute force on all small graphs.
//
// "All" means: the root, EXIT, EXIT->root, and every subset of the edges that a program could have
// (from any node but EXIT to any node, self loops included), reachable or not:
//   2, 3, 4 nodes  4 + 64 + 4096 graphs, each with all 2^|E| sets of counted edges;
//   5 nodes        the 65536 graphs without self loops, one of each class that differs in the
//                  names of the three inner nodes only, with all sets of uncounted edges that are
//                  independent (found by trying; a superset of a dependent set is dependent).
// Self loops are tried to 4 nodes only, for time; they depend on nothing and are always counted.
#include <algorithm>
#include <array>
#include <limits>

#include "placement_support.h"

namespace tally::placement {
namespace {

using Pairs = std::vector<std::pair<NodeId, NodeId>>;

Pairs possible_edges(uint32_t node_count, bool self_loops) {
  Pairs pairs;
  for (NodeId from = 0; from + 1 < node_count; ++from) {
    for (NodeId to = 0; to < node_count; ++to) {
      if (from != to || self_loops) pairs.emplace_back(from, to);
    }
  }
  return pairs;
}

Graph graph_of(uint32_t node_count, const Pairs& possible, uint32_t mask) {
  Pairs chosen;
  for (size_t i = 0; i < possible.size(); ++i) {
    if ((mask >> i & 1) != 0) chosen.push_back(possible[i]);
  }
  return make_graph(node_count, chosen);
}

double cost_of(const Graph& graph, const std::vector<bool>& counted) {
  double cost = 0;
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    if (counted[id]) cost += graph.edges[id].weight;
  }
  return cost;
}

// Tries every set of normal edges; the only method that assumes nothing.
double cheapest_by_all_subsets(const Graph& graph) {
  std::vector<EdgeId> normal;
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    if (graph.edges[id].role == EdgeRole::kNormal) normal.push_back(id);
  }
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t mask = 0; mask < 1u << normal.size(); ++mask) {
    std::vector<bool> counted(graph.edges.size());
    for (size_t i = 0; i < normal.size(); ++i) counted[normal[i]] = (mask >> i & 1) != 0;
    if (solves_edge_frequencies(graph, counted)) best = std::min(best, cost_of(graph, counted));
  }
  return best;
}

// Tries every independent set of uncounted edges.
class IndependentSets {
 public:
  explicit IndependentSets(const Graph& graph) : graph_(graph) {
    for (EdgeId id = 0; id < graph.edges.size(); ++id) {
      columns_.push_back(equation_column(graph, id));
      if (graph.edges[id].role == EdgeRole::kNormal) total_ += graph.edges[id].weight;
    }
  }
  double cheapest() {
    basis_.add(columns_[0]);  // EXIT->root is always uncounted
    extend(1, 0);
    return total_ - heaviest_;
  }

 private:
  void extend(EdgeId first, double weight) {
    heaviest_ = std::max(heaviest_, weight);
    for (EdgeId id = first; id < graph_.edges.size(); ++id) {
      if (!basis_.add(columns_[id])) continue;
      extend(id + 1, weight + graph_.edges[id].weight);
      basis_.remove_last();
    }
  }

  const Graph& graph_;
  std::vector<std::vector<int>> columns_;
  Basis basis_;
  double total_ = 0;
  double heaviest_ = 0;
};

void expect_cheapest(const Graph& graph, double cheapest) {
  const Plan plan = place_counters(graph, Mode::kEdges);
  ASSERT_TRUE(solves_edge_frequencies(graph, plan.edge_counted));
  ASSERT_EQ(plan.cost, cost_of(graph, plan.edge_counted));
  ASSERT_EQ(plan.cost, cheapest);
}

void try_all_graphs(uint32_t node_count, Random& random) {
  const Pairs possible = possible_edges(node_count, true);
  for (uint32_t mask = 0; mask < 1u << possible.size(); ++mask) {
    SCOPED_TRACE(fmt::format("{} nodes, edges {:#x}", node_count, mask));
    Graph graph = graph_of(node_count, possible, mask);
    set_random_weights(random, graph);
    expect_cheapest(graph, cheapest_by_all_subsets(graph));
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PlacementExhaustive, CheapestOnAllGraphsUpToFourNodes) {
  const uint64_t seed = first_seed();
  SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
  Random random(seed);
  for (const uint32_t node_count : {2u, 3u, 4u}) try_all_graphs(node_count, random);
}

// Whether no renaming of the inner nodes gives a smaller mask.
bool is_representative(const Pairs& possible, uint32_t mask) {
  std::array<NodeId, 3> inner = {1, 2, 3};
  while (std::next_permutation(inner.begin(), inner.end())) {
    const auto rename = [&](NodeId node) {
      return node >= 1 && node <= 3 ? inner[node - 1] : node;
    };
    uint32_t renamed = 0;
    for (size_t i = 0; i < possible.size(); ++i) {
      if ((mask >> i & 1) == 0) continue;
      const std::pair image(rename(possible[i].first), rename(possible[i].second));
      renamed |= 1u << (std::find(possible.begin(), possible.end(), image) - possible.begin());
    }
    if (renamed < mask) return false;
  }
  return true;
}

TEST(PlacementExhaustive, CheapestOnAllGraphsOfFiveNodes) {
  const uint64_t seed = first_seed();
  SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
  Random random(seed);
  const Pairs possible = possible_edges(5, false);
  int graphs = 0;
  for (uint32_t mask = 0; mask < 1u << possible.size(); ++mask) {
    if (!is_representative(possible, mask)) continue;
    SCOPED_TRACE(fmt::format("edges {:#x}", mask));
    Graph graph = graph_of(5, possible, mask);
    set_random_weights(random, graph);
    expect_cheapest(graph, IndependentSets(graph).cheapest());
    if (HasFatalFailure()) return;
    ++graphs;
  }
  // Burnside over the six renamings, with 16 possible edges.
  EXPECT_EQ(graphs, (65536 + 3 * (1 << 10) + 2 * (1 << 6)) / 6);
}

// Parallel edges, measured edges and several entries, which the lists above do not have.
TEST(PlacementExhaustive, CheapestOnRandomSmallGraphs) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 1000; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    Graph graph = random_graph(random, 5);
    if (graph.edges.size() > 11) continue;
    set_random_weights(random, graph);
    expect_cheapest(graph, cheapest_by_all_subsets(graph));
    if (HasFatalFailure()) return;
  }
}

// A canary: the check above can fail, for a plan that does not solve and for one that is dear.
TEST(PlacementExhaustive, BruteForceSeesABadPlan) {
  Graph graph = make_graph(4, {{0, 1}, {1, 3}, {0, 2}, {2, 3}});
  graph.edges[1].weight = 9;
  graph.edges[2].weight = 3;
  graph.edges[3].weight = 1;
  graph.edges[4].weight = 1;
  const std::vector<bool> too_few = {false, true, true, false, false};
  const std::vector<bool> dear = {false, true, false, true, false};
  EXPECT_FALSE(solves_edge_frequencies(graph, too_few));
  EXPECT_TRUE(solves_edge_frequencies(graph, dear));
  EXPECT_EQ(cost_of(graph, dear), 10);
  EXPECT_EQ(cheapest_by_all_subsets(graph), 4);
}

TEST(PlacementPlan, TiesAreBrokenByEdgeId) {
  const Graph graph = make_graph(3, {{0, 1}, {0, 1}, {1, 2}, {1, 2}, {1, 1}});
  const Plan plan = place_counters(graph, Mode::kEdges);
  // EXIT->root and the first 0->1 connect all; what closes a cycle is counted.
  EXPECT_EQ(plan.edge_counted, (std::vector<bool>{false, false, true, true, true, true}));
}

TEST(PlacementPlan, BlocksCountEveryNodeButExit) {
  Graph graph = make_graph(3, {{0, 1}, {1, 2}, {1, 0}});
  graph.edges[0].weight = 1;
  graph.edges[1].weight = 4;
  graph.edges[2].weight = 1;
  graph.edges[3].weight = 3;
  const Plan plan = place_counters(graph, Mode::kBlocks);
  EXPECT_EQ(plan.node_counted, (std::vector<bool>{true, true, false}));
  EXPECT_TRUE(plan.edge_counted.empty());
  EXPECT_EQ(plan.cost, 8);
}

}  // namespace
}  // namespace tally::placement
