// Static weights: the paper's example, its rules one by one, and shapes that no compiler emits.
#include <cmath>

#include "placement_support.h"

namespace tally::placement {
namespace {

std::vector<double> weights_of(Graph graph) {
  set_static_weights(graph);
  std::vector<double> weights;
  for (const Edge& edge : graph.edges) weights.push_back(edge.weight);
  return weights;
}

// Figure 1, as its text determines it (Q = R = A + B, EXIT = (P + R) - (C + Q)):
//   while (P) { if (Q) A; else B; if (R) break; C; }
enum Figure1 : NodeId { kP, kQ, kA, kB, kR, kC, kExit, kFigureNodes };
enum Figure1Edge : EdgeId { kExitP, kPQ, kPExit, kQA, kQB, kAR, kBR, kRC, kRExit, kCP };

Graph figure_1() {
  Graph graph = make_graph(kFigureNodes, {{kP, kQ},
                                          {kP, kExit},
                                          {kQ, kA},
                                          {kQ, kB},
                                          {kA, kR},
                                          {kB, kR},
                                          {kR, kC},
                                          {kR, kExit},
                                          {kC, kP}});
  set_static_weights(graph);
  return graph;
}

double sum_of(const Graph& graph, const std::vector<EdgeId>& edges) {
  double sum = 0;
  for (const EdgeId id : edges) sum += graph.edges[id].weight;
  return sum;
}

TEST(PlacementWeights, FigureOne) {
  const Graph graph = figure_1();
  EXPECT_EQ(weights_of(graph),
            (std::vector<double>{1, 10.5, 0.5, 5.25, 5.25, 5.25, 5.25, 10, 0.5, 10}));
  const Plan plan = place_counters(graph, Mode::kEdges);
  double tree = 0;
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    if (!plan.edge_counted[id]) tree += graph.edges[id].weight;
  }
  EXPECT_EQ(plan.cost, 11.5);  // Figure 3 (b)
  EXPECT_EQ(tree, 42);
  // Figure 3 (a) counts P->Q and Q->A instead of the two cheap exits of the diamond.
  EXPECT_EQ(sum_of(graph, {kPQ, kQA, kPExit, kRExit}), 16.75);
  // Section 3.2: the best vertices are {A, B, C, EXIT}, by their incoming edges.
  EXPECT_EQ(sum_of(graph, {kQA, kQB, kRC, kPExit, kRExit}), 21.5);
}

TEST(PlacementWeights, FigureThreeCountsAreDerived) {
  const Graph graph = figure_1();
  const Plan plan = place_counters(graph, Mode::kEdges);
  // P Q A R C, P Q B R C, P Q A R, EXIT.
  const Truth truth{
      .edges = {1, 3, 0, 2, 1, 2, 1, 2, 1, 2}, .nodes = {3, 3, 2, 1, 3, 2, 1}, .abnormal = {}};
  const Solution solution = propagate(graph, measure(graph, plan, truth), {}).value();
  EXPECT_EQ(first_difference(solution, truth), "");
  EXPECT_TRUE(solution.balanced());
}

TEST(PlacementWeights, BranchesAreEquallyLikely) {
  EXPECT_EQ(weights_of(make_graph(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}})),
            (std::vector<double>{1, 0.5, 0.5, 0.5, 0.5}));
}

TEST(PlacementWeights, ABranchFarForwardIsLessLikely) {
  constexpr uint32_t kNodes = 43;  // the last is EXIT
  std::vector<std::pair<NodeId, NodeId>> edges = {{0, 1}, {0, 9}};
  for (NodeId node = 1; node < kNodes - 1; ++node) edges.emplace_back(node, node + 1);
  const auto weight_of_branch_to = [&](NodeId to) {
    edges[1].second = to;
    return weights_of(make_graph(kNodes, edges))[2];
  };
  EXPECT_DOUBLE_EQ(weight_of_branch_to(8), 1.0 / 2);
  EXPECT_DOUBLE_EQ(weight_of_branch_to(9), 1.0 / 3);
  EXPECT_DOUBLE_EQ(weight_of_branch_to(32), 1.0 / 3);
  EXPECT_DOUBLE_EQ(weight_of_branch_to(33), 1.0 / 5);
  // EXIT has the highest number, but no place in the code.
  EXPECT_DOUBLE_EQ(weight_of_branch_to(kNodes - 1), 1.0 / 2);
}

// 0 branches to 1 -> 2 -> 4 or to 3 -> 4.
Graph two_ways(NodeId calls) {
  Graph graph = make_graph(6, {{0, 1}, {0, 3}, {1, 2}, {2, 4}, {3, 4}, {4, 5}});
  graph.calls.assign(graph.node_count, false);
  graph.calls[calls] = true;
  return graph;
}

TEST(PlacementWeights, ABranchToACallIsLessLikely) {
  EXPECT_DOUBLE_EQ(weights_of(two_ways(3))[2], 0.2);
  EXPECT_DOUBLE_EQ(weights_of(two_ways(1))[1], 0.2);
  // Behind blocks that lead nowhere else.
  EXPECT_DOUBLE_EQ(weights_of(two_ways(2))[1], 0.2);
  // A call that is met either way says nothing.
  EXPECT_DOUBLE_EQ(weights_of(two_ways(4))[1], 0.5);
  EXPECT_DOUBLE_EQ(weights_of(two_ways(0))[1], 0.5);
}

// 0 goes to 1 or 2, 1 to 2 or 3: the call in 2 is one that others come to as well.
TEST(PlacementWeights, ABranchToASharedCallIsSomewhatLessLikely) {
  Graph graph = make_graph(5, {{0, 1}, {0, 2}, {1, 2}, {1, 3}, {2, 3}, {3, 4}});
  graph.calls = {false, false, true, false, false};
  const std::vector<double> weights = weights_of(graph);
  EXPECT_DOUBLE_EQ(weights[2], 1.0 / 3);
  EXPECT_DOUBLE_EQ(weights[3], 2.0 / 9);
}

TEST(PlacementWeights, OddsDivideWhatIsLeft) {
  Graph graph = make_graph(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  graph.edges[2].odds = 0.25;
  EXPECT_DOUBLE_EQ(weights_of(graph)[2], 0.2);
  EXPECT_DOUBLE_EQ(weights_of(graph)[1], 0.8);
  // Only their ratio matters, and with a sign of the graph's they multiply.
  graph.edges[1].odds = 4;
  graph.edges[2].odds = 1;
  graph.calls = {false, false, true, false};
  EXPECT_DOUBLE_EQ(weights_of(graph)[2], 1.0 / 17);
}

// Exits get their share of the entries, and the rest goes where it can go.
TEST(PlacementWeights, OddsLeaveLoopsAlone) {
  Graph graph = make_graph(2, {{0, 0}, {0, 1}});
  graph.edges[2].odds = 0.1;
  EXPECT_EQ(weights_of(graph), (std::vector<double>{1, 10, 1}));
}

TEST(PlacementWeights, SelfLoopRunsTenTimes) {
  EXPECT_EQ(weights_of(make_graph(2, {{0, 0}, {0, 1}})), (std::vector<double>{1, 10, 1}));
}

TEST(PlacementWeights, NestedLoopsMultiply) {
  // 0 and 1 are headers; 1 is entered ten times: from 0's 11 minus the exit's 1.
  EXPECT_EQ(weights_of(make_graph(3, {{0, 1}, {1, 1}, {1, 0}, {0, 2}})),
            (std::vector<double>{1, 10, 100, 10, 1}));
}

TEST(PlacementWeights, ExitsShareTheEntries) {
  // A loop of four blocks, each with an exit.
  const Graph graph =
      make_graph(5, {{0, 1}, {1, 2}, {2, 3}, {3, 0}, {0, 4}, {1, 4}, {2, 4}, {3, 4}});
  EXPECT_EQ(weights_of(graph),
            (std::vector<double>{1, 10.75, 10.5, 10.25, 10, 0.25, 0.25, 0.25, 0.25}));
}

TEST(PlacementWeights, ExitOfTwoLoopsCountsForBoth) {
  // Outer loop 0..2, inner loop 1; 1 leaves the inner one (to 2) or both (to EXIT), 2 the outer.
  const Graph graph = make_graph(4, {{0, 1}, {1, 1}, {1, 2}, {1, 3}, {2, 0}, {2, 3}});
  // Outer: entered once, two exits, 0.5 each.  Inner: entered 11 times, 0.5 leave it for good.
  EXPECT_EQ(weights_of(graph), (std::vector<double>{1, 11, 110, 10.5, 0.5, 10, 0.5}));
}

// Block 4 sees an eighth of the loop's 11, so its exit gets half of that and not all of N = 1.
TEST(PlacementWeights, ExitOfAColdBlockIsNoLikelierThanItsBranches) {
  const Graph graph =
      make_graph(6, {{0, 1}, {0, 2}, {1, 3}, {1, 2}, {3, 4}, {3, 2}, {4, 2}, {4, 5}, {2, 0}});
  EXPECT_EQ(weights_of(graph),
            (std::vector<double>{1, 5.5, 5.5, 2.75, 2.75, 1.375, 1.375, 0.6875, 0.6875, 10.3125}));
}

// The same with a loop at 4: entered 1.375 times, it has two exits, though the outer would give 1.
TEST(PlacementWeights, ExitOfTwoLoopsGetsTheSmallerShare) {
  const Graph graph = make_graph(
      6, {{0, 1}, {0, 2}, {1, 3}, {1, 2}, {3, 4}, {3, 2}, {4, 4}, {4, 2}, {4, 5}, {2, 0}});
  EXPECT_EQ(weights_of(graph), (std::vector<double>{1, 5.5, 5.5, 2.75, 2.75, 1.375, 1.375, 13.75,
                                                    0.6875, 0.6875, 10.3125}));
}

TEST(PlacementWeights, OtherEntriesCarryOneExecution) {
  Graph graph = make_graph(4, {{0, 3}, {1, 2}, {2, 3}});
  graph.edges.push_back({.from = 3, .to = 1, .role = EdgeRole::kMeasured});
  EXPECT_EQ(weights_of(graph), (std::vector<double>{1, 1, 1, 1, 1}));
}

TEST(PlacementWeights, UnreachableBlocksWeighNothing) {
  EXPECT_EQ(weights_of(make_graph(4, {{0, 3}, {1, 2}, {2, 1}, {2, 3}, {1, 0}})),
            (std::vector<double>{1, 1, 0, 0, 0, 0}));
}

TEST(PlacementWeights, SecondEntryOfAnIrreducibleLoopIsNoBackEdge) {
  // 0 -> {1, 2}, 1 <-> 2, 2 -> EXIT.  The search enters at 1; 0->2 brings 0.5 past the header.
  const std::vector<double> weights =
      weights_of(make_graph(4, {{0, 1}, {0, 2}, {1, 2}, {2, 1}, {2, 3}}));
  EXPECT_EQ(weights[1], 0.5);
  EXPECT_EQ(weights[2], 0.5);
  EXPECT_EQ(weights[3], 5.5);  // header 1 was entered 0.5 times
  EXPECT_EQ(weights[5], 0.5);
}

// --- conservation -------------------------------------------------------------------------------

// A random structured program: sequences, conditionals, while and do loops, breaks.
class Program {
 public:
  Program(Random& random, bool with_breaks) : random_(random), with_breaks_(with_breaks) {
    const NodeId end = statement(add(), 4);
    exit_ = add();
    edges_.emplace_back(end, exit_);
  }
  Graph graph() const { return make_graph(nodes_, edges_); }
  // By NodeId: whether it heads a loop.
  const std::vector<bool>& headers() const { return headers_; }

 private:
  NodeId add() {
    headers_.push_back(false);
    return nodes_++;
  }
  NodeId after(NodeId node) {
    const NodeId next = add();
    edges_.emplace_back(node, next);
    return next;
  }

  // Appends a statement that begins in `node`; returns the block where it ends.
  NodeId statement(NodeId node, int depth) {
    switch (depth == 0 ? 5 : below(random_, 6)) {
      case 0:
        return statement(statement(node, depth - 1), depth - 1);
      case 1:
        return conditional(node, depth);
      case 2:
        return while_loop(after(node), depth);
      case 3:
        return do_loop(after(node), depth);
      case 4:
        return breaking(node);
      default:
        return node;
    }
  }

  NodeId conditional(NodeId node, int depth) {
    const NodeId yes = statement(after(node), depth - 1);
    const NodeId no = statement(after(node), depth - 1);
    const NodeId join = after(yes);
    edges_.emplace_back(no, join);
    return join;
  }

  NodeId while_loop(NodeId head, int depth) {
    const NodeId out = after(head);
    const NodeId end = loop_body(after(head), out, depth);
    edges_.emplace_back(end, head);
    headers_[head] = true;
    return out;
  }

  NodeId do_loop(NodeId head, int depth) {
    const NodeId out = add();
    const NodeId end = loop_body(head, out, depth);
    edges_.emplace_back(end, head);
    edges_.emplace_back(end, out);
    headers_[head] = true;
    return out;
  }

  NodeId loop_body(NodeId node, NodeId out, int depth) {
    breaks_.push_back(out);
    const NodeId end = statement(node, depth - 1);
    breaks_.pop_back();
    return end;
  }

  // if (...) break: out of one loop or several.
  NodeId breaking(NodeId node) {
    if (!with_breaks_ || breaks_.empty()) return node;
    edges_.emplace_back(node, breaks_[below(random_, breaks_.size())]);
    return after(node);
  }

  Random& random_;
  bool with_breaks_;
  NodeId nodes_ = 0;
  NodeId exit_ = 0;
  std::vector<std::pair<NodeId, NodeId>> edges_;
  std::vector<NodeId> breaks_;
  std::vector<bool> headers_;
};

void set_random_signs(Random& random, Graph& graph) {
  for (Edge& edge : graph.edges) {
    if (one_in(random, 3)) edge.odds = one_in(random, 2) ? 0.1 : 10;
  }
  for (NodeId node = 0; node < graph.node_count; ++node) graph.calls.push_back(one_in(random, 4));
}

TEST(PlacementWeights, FlowIsConservedInStructuredPrograms) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 2000; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    const bool with_breaks = one_in(random, 2);
    const Program program(random, with_breaks);
    Graph graph = program.graph();
    set_random_signs(random, graph);
    set_static_weights(graph);
    std::vector<double> in(graph.node_count);
    std::vector<double> out(graph.node_count);
    for (const Edge& edge : graph.edges) {
      out[edge.from] += edge.weight;
      in[edge.to] += edge.weight;
    }
    for (NodeId node = 0; node < graph.node_count; ++node) {
      const double tolerance = 1e-9 * out[node];
      if (!with_breaks || (!program.headers()[node] && node != graph.exit)) {
        ASSERT_NEAR(in[node], out[node], tolerance) << node;
      } else {
        // Exits colder than their share keep flow in the loop: at most all of it, a part in eleven.
        ASSERT_LE(in[node], out[node] * 12 / 11 + tolerance) << node;
        ASSERT_GT(in[node], 0) << node;
      }
    }
  }
}

// --- any shape ----------------------------------------------------------------------------------

void expect_sane(const Graph& graph) {
  for (const Edge& edge : graph.edges) {
    ASSERT_TRUE(std::isfinite(edge.weight) && edge.weight >= 0) << edge.from << "->" << edge.to;
  }
}

TEST(PlacementWeights, RandomGraphsGetFiniteWeights) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 2000; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    Graph graph = random_graph(random, one_in(random, 10) ? 1000 : 20);
    if (one_in(random, 2)) set_random_signs(random, graph);
    set_static_weights(graph);
    expect_sane(graph);
    if (HasFatalFailure()) return;
  }
}

TEST(PlacementWeights, DeepNestingStaysFinite) {
  constexpr uint32_t kDepth = 2000;
  std::vector<std::pair<NodeId, NodeId>> edges;
  for (NodeId node = 0; node < kDepth; ++node) edges.emplace_back(node, node + 1);
  for (NodeId node = 0; node < kDepth; ++node) edges.emplace_back(kDepth, node);
  edges.emplace_back(kDepth, kDepth + 1);
  Graph graph = make_graph(kDepth + 2, edges);
  set_static_weights(graph);
  expect_sane(graph);
}

TEST(PlacementWeights, CompleteGraphTerminates) {
  constexpr uint32_t kNodes = 60;
  std::vector<std::pair<NodeId, NodeId>> edges;
  for (NodeId from = 0; from + 1 < kNodes; ++from) {
    for (NodeId to = 0; to < kNodes; ++to) edges.emplace_back(from, to);
  }
  Graph graph = make_graph(kNodes, edges);
  set_static_weights(graph);
  expect_sane(graph);
}

TEST(PlacementWeights, EndlessLoop) {
  EXPECT_EQ(weights_of(make_graph(2, {{0, 0}})), (std::vector<double>{1, 11}));
}

}  // namespace
}  // namespace tally::placement
