// Counts derived from the counters of a plan are the true ones, and wrong counters are noticed.
#include <algorithm>
#include <limits>

#include "placement_support.h"

namespace tally::placement {
namespace {

using Kind = Imbalance::Kind;

Solution solve(const Graph& graph, const Measured& measured, const Truth& truth) {
  return propagate(graph, measured, truth.abnormal).value();
}

bool has(const Solution& solution, Kind kind) {
  return std::any_of(solution.imbalances.begin(), solution.imbalances.end(),
                     [&](const Imbalance& imbalance) { return imbalance.kind == kind; });
}

bool any_unknown(const std::vector<Count>& counts) {
  return std::any_of(counts.begin(), counts.end(),
                     [](const Count& count) { return count.origin == Origin::kUnknown; });
}

void expect_all_known(const Graph& graph, const Truth& truth) {
  const Plan plan = place_counters(graph, Mode::kEdges);
  const Solution solution = solve(graph, measure(graph, plan, truth), truth);
  ASSERT_EQ(first_difference(solution, truth), "");
  ASSERT_TRUE(solution.balanced());
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    const bool counted = plan.edge_counted[id] || graph.edges[id].role == EdgeRole::kMeasured;
    ASSERT_EQ(solution.edges[id].origin, counted ? Origin::kMeasured : Origin::kDerived) << id;
  }
  ASSERT_FALSE(any_unknown(solution.nodes));
}

void expect_blocks_known(const Graph& graph, const Truth& truth) {
  const Plan plan = place_counters(graph, Mode::kBlocks);
  const Solution solution = solve(graph, measure(graph, plan, truth), truth);
  ASSERT_EQ(first_difference(solution, truth), "");
  ASSERT_FALSE(has(solution, Kind::kNegative) || has(solution, Kind::kUnbalanced));
  for (NodeId node = 0; node < graph.node_count; ++node) {
    if (node == graph.exit) continue;
    ASSERT_EQ(solution.nodes[node].origin, Origin::kMeasured) << node;
  }
  // Unknown counts are never kept secret.
  const bool unknown = any_unknown(solution.edges) || any_unknown(solution.nodes);
  ASSERT_EQ(has(solution, Kind::kUnknown), unknown);
}

void walk_random_graphs(uint32_t nodes_max, int graphs) {
  for (uint64_t seed = first_seed(); seed < first_seed() + graphs; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    Graph graph = random_graph(random, nodes_max);
    if (one_in(random, 2)) {
      set_random_weights(random, graph);
    } else {
      set_static_weights(graph);
    }
    const int executions = static_cast<int>(below(random, 12));
    const Truth truth = Walker(graph, random).run(executions, one_in(random, 2));
    expect_all_known(graph, truth);
    expect_blocks_known(graph, truth);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PlacementPropagate, WalksOfSmallGraphs) {
  walk_random_graphs(8, 4000);
}
TEST(PlacementPropagate, WalksOfLargeGraphs) {
  walk_random_graphs(200, 300);
}

// --- what block counters can tell ---------------------------------------------------------------

// The equations of the halves of the nodes over all counts; those measured are columns of zeros.
struct Equations {
  Equations(const Graph& graph, const Measured& measured)
      : columns(graph.edges.size() + graph.node_count) {
    for (NodeId node = 0; node < graph.node_count; ++node) {
      std::vector<int> in(columns);
      std::vector<int> out(columns);
      for (EdgeId id = 0; id < graph.edges.size(); ++id) {
        if (measured.edges[id]) continue;
        if (graph.edges[id].to == node) in[id] = 1;
        if (graph.edges[id].from == node) out[id] = -1;
      }
      if (!measured.nodes[node]) {
        in[graph.edges.size() + node] = -1;
        out[graph.edges.size() + node] = 1;
      }
      rows.add(in);
      rows.add(out);
    }
  }
  bool determine(size_t column) const {
    std::vector<int> unit(columns);
    unit[column] = 1;
    return rows.spans(unit);
  }
  size_t columns;
  Basis rows;
};

// Propagation knows whatever follows from the equations, for any mixture of counters.
TEST(PlacementPropagate, KnowsAllThatFollows) {
  for (uint64_t seed = first_seed(); seed < first_seed() + 2000; ++seed) {
    SCOPED_TRACE(fmt::format("TALLY_SEED={}", seed));
    Random random(seed);
    const Graph graph = random_graph(random, 6);
    const Truth truth = Walker(graph, random).run(5, one_in(random, 2));
    Measured measured = measure(graph, place_counters(graph, Mode::kBlocks), truth);
    for (std::optional<uint64_t>& node : measured.nodes) {
      if (one_in(random, 4)) node.reset();
    }
    const Solution solution = solve(graph, measured, truth);
    ASSERT_EQ(first_difference(solution, truth), "");
    const Equations equations(graph, measured);
    std::vector<Count> counts = solution.edges;
    counts.insert(counts.end(), solution.nodes.begin(), solution.nodes.end());
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i].origin == Origin::kMeasured) continue;
      const bool known = counts[i].origin == Origin::kDerived;
      ASSERT_TRUE(known || !equations.determine(i)) << i;
    }
  }
}

TEST(PlacementPropagate, CodeThatNeverRanIsKnownFromBlocks) {
  // Two ways from {0, 1} to {2, 3} form a cycle; the way through 1 never ran.
  const Graph graph = make_graph(5, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 4}, {3, 4}});
  Measured measured{.edges = std::vector<std::optional<uint64_t>>(8), .nodes = {7, 0, 3, 4, {}}};
  const Solution solution = propagate(graph, measured, {}).value();
  EXPECT_TRUE(solution.balanced());
  EXPECT_EQ(solution.edges[2].value, 3);
  EXPECT_EQ(solution.edges[3].value, 4);
  EXPECT_EQ(solution.nodes[4], (Count{7, Origin::kDerived}));
  measured.nodes = {7, 1, 3, 4, {}};
  EXPECT_TRUE(has(propagate(graph, measured, {}).value(), Kind::kUnknown));
}

// --- abnormal flow ------------------------------------------------------------------------------

// Figure 4: the program exits in block 1, never reaching the procedure's end.
TEST(PlacementPropagate, ExitInTheMiddle) {
  const Graph graph = make_graph(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  const Measured measured{.edges = {{}, {}, 0, 0, {}}, .nodes = {{}, {}, {}, {}}};
  const std::vector<AbnormalFlow> exited = {{.node = 1, .entered = 0, .left = 1}};
  const Solution solution = propagate(graph, measured, exited).value();
  EXPECT_TRUE(solution.balanced());
  EXPECT_EQ(solution.edges[0].value, 1);  // EXIT->root: the procedure ran once
  EXPECT_EQ(solution.edges[1].value, 1);
  EXPECT_EQ(solution.nodes[3].value, 1);  // and ended once, if abnormally
  // Without the ledger the minimal counters cannot tell that anything is missing.
  EXPECT_EQ(propagate(graph, measured, {}).value().edges[1].value, 0);
}

TEST(PlacementPropagate, EntryInTheMiddleIsNotARun) {
  const Graph graph = make_graph(3, {{0, 1}, {1, 2}});
  const Measured measured{.edges = std::vector<std::optional<uint64_t>>(3), .nodes = {0, 1, {}}};
  const std::vector<AbnormalFlow> attached = {{.node = 1, .entered = 1, .left = 0}};
  const Solution solution = propagate(graph, measured, attached).value();
  EXPECT_TRUE(solution.balanced());
  EXPECT_EQ(solution.edges[0].value, 0);
  EXPECT_EQ(solution.nodes[2].value, 1);
}

// --- faults -------------------------------------------------------------------------------------

// With every edge and node counted, no single wrong counter goes unnoticed.
TEST(PlacementPropagate, EveryWrongCounterIsNoticed) {
  Random random(first_seed());
  const Graph graph = random_graph(random, 12);
  const Truth truth = Walker(graph, random).run(10, true);
  Measured all{.edges = {truth.edges.begin(), truth.edges.end()},
               .nodes = {truth.nodes.begin(), truth.nodes.end()}};
  ASSERT_TRUE(solve(graph, all, truth).balanced());
  for (EdgeId id = 0; id < graph.edges.size(); ++id) {
    ++*all.edges[id];
    EXPECT_TRUE(has(solve(graph, all, truth), Kind::kUnbalanced)) << id;
    --*all.edges[id];
  }
  for (NodeId node = 0; node < graph.node_count; ++node) {
    ++*all.nodes[node];
    const Solution solution = solve(graph, all, truth);
    EXPECT_EQ(solution.imbalances, (std::vector<Imbalance>{{Kind::kUnbalanced, node, -1}}));
    --*all.nodes[node];
  }
}

// A lost event of the ledger shows as soon as one block has a counter of its own.
TEST(PlacementPropagate, MissingAbnormalFlowIsNoticed) {
  const Graph graph = make_graph(3, {{0, 1}, {1, 2}});
  Measured measured{.edges = std::vector<std::optional<uint64_t>>(3), .nodes = {5, 4, {}}};
  const std::vector<AbnormalFlow> left = {{.node = 0, .entered = 0, .left = 1}};
  EXPECT_TRUE(propagate(graph, measured, left).value().balanced());
  EXPECT_TRUE(has(propagate(graph, measured, {}).value(), Kind::kUnbalanced));
}

TEST(PlacementPropagate, NegativeCountsAreNeverHandedOut) {
  // The loop's body runs as often as its edge back; fewer exits than that cannot be.
  const Graph graph = make_graph(3, {{0, 1}, {0, 2}, {1, 2}});
  const Measured measured{.edges = {{}, {}, {}, 9}, .nodes = {4, {}, {}}};
  const Solution solution = propagate(graph, measured, {}).value();
  EXPECT_EQ(solution.edges[2], Count{});
  EXPECT_EQ(solution.imbalances, (std::vector<Imbalance>{{Kind::kNegative, 0, -5}}));
}

// 0->EXIT alone ran more often than block 0; what is left for 0->2 and 0->3 cannot be negative.
TEST(PlacementPropagate, NegativeSumOfUnknownEdgesIsNoticed) {
  const Graph graph =
      make_graph(5, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 4}, {3, 4}, {0, 4}});
  Measured measured{.edges = std::vector<std::optional<uint64_t>>(9), .nodes = {5, {}, 2, 2, {}}};
  measured.edges[1] = 1;
  measured.edges[8] = 9;
  const Solution solution = propagate(graph, measured, {}).value();
  EXPECT_EQ(solution.edges[2], Count{});
  EXPECT_NE(std::find(solution.imbalances.begin(), solution.imbalances.end(),
                      Imbalance{Kind::kNegative, 0, -5}),
            solution.imbalances.end());
}

// Blocks {0, 1} send into {2, 3} and those into {4, 5}, each to each: two cycles, no edge is known.
// But 5 + 5 go in and 6 + 5 are counted, so block 2's counter is wrong.
TEST(PlacementPropagate, ContradictionAroundUnknownEdgesIsNoticed) {
  Graph graph = make_graph(7, {{0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 4}, {2, 5}, {3, 4}, {3, 5}});
  graph.edges.push_back({.from = 4, .to = 6});
  graph.edges.push_back({.from = 5, .to = 6});
  graph.edges.push_back({.from = 6, .to = 1, .role = EdgeRole::kMeasured});
  Measured measured{.edges = std::vector<std::optional<uint64_t>>(12),
                    .nodes = {5, 5, 6, 5, 5, 5, {}}};
  measured.edges.back() = 5;
  const Solution wrong = propagate(graph, measured, {}).value();
  EXPECT_TRUE(has(wrong, Kind::kUnbalanced));
  EXPECT_EQ(wrong.edges[1], Count{});
  measured.nodes[2] = 5;
  const Solution right = propagate(graph, measured, {}).value();
  EXPECT_FALSE(has(right, Kind::kUnbalanced));
  EXPECT_TRUE(has(right, Kind::kUnknown));
}

// A canary: the comparison with the truth can fail.
TEST(PlacementPropagate, ComparisonSeesAWrongCount) {
  const Graph graph = make_graph(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  Random random(first_seed());
  const Truth truth = Walker(graph, random).run(10, false);
  Measured measured = measure(graph, place_counters(graph, Mode::kEdges), truth);
  ASSERT_EQ(first_difference(solve(graph, measured, truth), truth), "");
  const auto counter = std::find_if(measured.edges.begin(), measured.edges.end(),
                                    [](const auto& value) { return value.has_value(); });
  ASSERT_NE(counter, measured.edges.end());
  ++**counter;
  EXPECT_NE(first_difference(solve(graph, measured, truth), truth), "");
}

// --- limits -------------------------------------------------------------------------------------

TEST(PlacementPropagate, ExactToTheLargestCount) {
  constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
  const Graph graph = make_graph(4, {{0, 1}, {0, 2}, {1, 3}, {2, 3}});
  Measured measured{.edges = {{}, kLargest - 1, 1, {}, {}}, .nodes = {{}, {}, {}, {}}};
  const Solution solution = propagate(graph, measured, {}).value();
  EXPECT_TRUE(solution.balanced());
  EXPECT_EQ(solution.nodes[0], (Count{kLargest, Origin::kDerived}));
  measured.edges[2] = 2;  // the sum no longer fits
  const Solution larger = propagate(graph, measured, {}).value();
  EXPECT_EQ(larger.nodes[0], Count{});
  EXPECT_TRUE(has(larger, Kind::kUnknown));
  EXPECT_EQ(larger.edges[3].value, kLargest - 1);
}

TEST(PlacementPropagate, SizesMustFit) {
  const Graph graph = make_graph(3, {{0, 1}, {1, 2}});
  const std::vector<std::optional<uint64_t>> three(3);
  const std::vector<std::optional<uint64_t>> two(2);
  EXPECT_FALSE(propagate(graph, {.edges = two, .nodes = three}, {}));
  EXPECT_FALSE(propagate(graph, {.edges = three, .nodes = two}, {}));
  const std::vector<AbnormalFlow> nowhere = {{.node = 3, .entered = 1, .left = 0}};
  EXPECT_FALSE(propagate(graph, {.edges = three, .nodes = three}, nowhere));
}

TEST(PlacementPropagate, EndlessLoopsAndDeadCodeFormAForest) {
  // 1 <-> 2 is apart from all else; 0 -> EXIT.
  const Graph graph = make_graph(4, {{0, 3}, {1, 2}, {2, 1}});
  const Plan plan = place_counters(graph, Mode::kEdges);
  Truth truth{.edges = {2, 2, 9, 8}, .nodes = {2, 9, 9, 3}, .abnormal = {}};
  truth.abnormal.push_back({.node = 1, .entered = 1, .left = 0});
  truth.abnormal.push_back({.node = 2, .entered = 0, .left = 1});
  const Solution solution = solve(graph, measure(graph, plan, truth), truth);
  EXPECT_EQ(first_difference(solution, truth), "");
  EXPECT_TRUE(solution.balanced());
}

}  // namespace
}  // namespace tally::placement
