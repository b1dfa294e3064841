// Blocks in the order of a run: each once, what ran in front, hot ways without jumps.
#include "placement/block_order.h"

#include <algorithm>

#include "placement_support.h"

namespace tally::placement {
namespace {

std::vector<bool> all_may_fall(const Graph& graph) {
  std::vector<bool> may_fall;
  for (const Edge& edge : graph.edges) may_fall.push_back(edge.role != EdgeRole::kVirtual);
  return may_fall;
}

// The essay's example: A, B, C, D and EXIT.
Graph diamond() {
  Graph graph = make_graph(5, {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {3, 4}});
  const double weights[] = {0, 10, 90, 10, 90, 100};
  for (size_t i = 0; i < graph.edges.size(); ++i) graph.edges[i].weight = weights[i];
  return graph;
}

TEST(BlockOrder, TheHotWayFallsThrough) {
  const Graph graph = diamond();
  const BlockOrder order = order_blocks(graph, all_may_fall(graph));
  EXPECT_EQ(order.nodes, (std::vector<NodeId>{0, 2, 3, 1}));
  EXPECT_EQ(order.hot, 4u);
}

TEST(BlockOrder, WhatNeverRanLiesBehind) {
  Graph graph = diamond();
  graph.edges[1].weight = graph.edges[3].weight = 0.9;
  const BlockOrder order = order_blocks(graph, all_may_fall(graph));
  EXPECT_EQ(order.nodes, (std::vector<NodeId>{0, 2, 3, 1}));
  EXPECT_EQ(order.hot, 3u);
}

TEST(BlockOrder, AnEdgeThatMustJumpJoinsNothing) {
  const Graph graph = diamond();
  std::vector<bool> may_fall = all_may_fall(graph);
  may_fall[4] = false;  // C -> D
  const BlockOrder order = order_blocks(graph, may_fall);
  EXPECT_EQ(order.nodes, (std::vector<NodeId>{0, 2, 1, 3}));
}

TEST(BlockOrder, OfEdgesAlikeNeighboursStay) {
  Graph graph = make_graph(4, {{0, 2}, {0, 1}, {1, 3}, {2, 3}});
  for (Edge& edge : graph.edges) edge.weight = 5;
  EXPECT_EQ(order_blocks(graph, all_may_fall(graph)).nodes, (std::vector<NodeId>{0, 1, 2}));
}

TEST(BlockOrder, TheRootIsFirstWhereverItLies) {
  Graph graph = make_graph(4, {{2, 1}, {1, 0}, {0, 2}});
  graph.root = 2;
  for (Edge& edge : graph.edges) edge.weight = 7;
  EXPECT_EQ(order_blocks(graph, all_may_fall(graph)).nodes, (std::vector<NodeId>{2, 1, 0}));
}

void check_order(const Graph& graph, const BlockOrder& order) {
  std::vector<bool> seen(graph.node_count, false), ran(graph.node_count, false);
  ran[graph.root] = true;
  for (const Edge& edge : graph.edges) {
    if (edge.weight >= kRan) ran[edge.from] = ran[edge.to] = true;
  }
  ASSERT_EQ(order.nodes.size() + 1, graph.node_count);
  ASSERT_EQ(order.nodes.front(), graph.root);
  for (uint32_t i = 0; i < order.nodes.size(); ++i) {
    ASSERT_NE(order.nodes[i], graph.exit);
    ASSERT_FALSE(seen[order.nodes[i]]);
    seen[order.nodes[i]] = true;
    ASSERT_EQ(ran[order.nodes[i]], i < order.hot);
  }
  // What never ran keeps its place among its like.
  ASSERT_TRUE(std::is_sorted(order.nodes.begin() + order.hot, order.nodes.end()));
}

// The heaviest edge that can be followed without a jump is.
void check_heaviest(const Graph& graph, const BlockOrder& order) {
  const Edge* heaviest = nullptr;
  for (const Edge& edge : graph.edges) {
    const bool inside = edge.from != graph.exit && edge.to != graph.exit;
    const bool able = inside && edge.from != edge.to && edge.to != graph.root;
    if (able && (heaviest == nullptr || edge.weight > heaviest->weight)) heaviest = &edge;
  }
  if (heaviest == nullptr || heaviest->weight < kRan) return;
  double falls = 0;
  for (const Edge& edge : graph.edges) {
    const auto at = std::ranges::find(order.nodes, edge.from);
    if (at == order.nodes.end() || at + 1 == order.nodes.end()) continue;
    if (*(at + 1) == edge.to) falls = std::max(falls, edge.weight);
  }
  ASSERT_EQ(falls, heaviest->weight);
}

TEST(BlockOrder, RandomGraphs) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 3000; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    Graph graph = random_graph(random, 12);
    set_random_weights(random, graph);
    const BlockOrder order = order_blocks(graph, all_may_fall(graph));
    check_order(graph, order);
    check_heaviest(graph, order);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tally::placement
