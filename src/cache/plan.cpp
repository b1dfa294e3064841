// See plan.h.
#include "cache/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "cache/blocks_together.h"
#include "cache/edge_weights.h"
#include "cache/inductions.h"
#include "cache/likelihood.h"
#include "placement/block_order.h"

namespace tally::engine {

using cfg::EdgeKind;
using placement::EdgeRole;

placement::Graph make_graph(const cfg::Procedure& procedure) {
  placement::Graph graph;
  const auto exit = static_cast<placement::NodeId>(procedure.blocks.size());
  graph.node_count = exit + 1;
  graph.root = procedure.entry_block;
  graph.exit = exit;
  graph.edges.reserve(procedure.edges.size() + 1);
  for (const cfg::Edge& edge : procedure.edges) {
    graph.edges.push_back(placement::Edge{
        edge.from, edge.to == cfg::kExitBlock ? exit : edge.to,
        edge.kind == EdgeKind::kTableJump ? EdgeRole::kMeasured : EdgeRole::kNormal, 0});
  }
  graph.edges.push_back(placement::Edge{exit, graph.root, EdgeRole::kVirtual, 0});
  return graph;
}

namespace {

// The way out of a call that may or may not come back has no place in the code where it could be
// counted: such an edge must be in the tree.
void force_uncountable(const cfg::Procedure& procedure, placement::Graph& graph) {
  for (const cfg::Block& block : procedure.blocks) {
    if (block.edge_count < 2) continue;
    for (uint32_t e = block.first_edge; e < block.first_edge + block.edge_count; ++e) {
      if (procedure.edges[e].kind == EdgeKind::kNoReturn) graph.edges[e].weight = 1e300;
    }
  }
}

// With edges counted, such a call's block is counted, and so is its return: the way out that has no
// place follows from the two, and none of the three is anything the tree has to tell.
template <class Do>
void for_each_open_call(const cfg::Procedure& procedure, Do action) {
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    const cfg::Block& block = procedure.blocks[b];
    if (block.edge_count < 2) continue;
    const uint32_t last = block.first_edge + block.edge_count - 1;
    if (procedure.edges[last].kind == EdgeKind::kNoReturn) action(b, block.first_edge, last);
  }
}

// False for a procedure that the earlier run never reached: it keeps the static weights.
bool set_feedback_weights(const cfg::Procedure& procedure, const FeedbackWeights& feedback,
                          placement::Graph& graph) {
  bool any = false;
  std::vector<double> weights(procedure.edges.size(), 0);
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    const LinkAddr from = procedure.address_of(procedure.blocks[edge.from]);
    const LinkAddr to =
        edge.to == cfg::kExitBlock ? edge.target : procedure.address_of(procedure.blocks[edge.to]);
    const double weight = feedback(from, to);
    if (weight > 0) {
      weights[e] = weight;
      any = true;
    }
  }
  if (!any) return false;
  for (size_t e = 0; e < weights.size(); ++e) graph.edges[e].weight = weights[e];
  return true;
}

// Where an edge is counted: inside one of its blocks, if no other edge leaves or enters there.  Of
// two such blocks in the one whose counter need not spare the flags.
class CountedAt {
 public:
  CountedAt(const cfg::Procedure& procedure, const placement::Graph& graph)
      : procedure_(procedure), graph_(graph), in_(graph.node_count, 0), out_(graph.node_count, 0) {
    for (const placement::Edge& edge : graph.edges) {
      ++out_[edge.from];
      ++in_[edge.to];
    }
    spares_flags_.reserve(procedure.blocks.size());
    for (const cfg::Block& block : procedure.blocks) {
      spares_flags_.push_back(!procedure.insn_with_dead(kFlags, block));
    }
  }
  // Nothing: on the edge itself.
  std::optional<placement::NodeId> block_of(size_t e) const {
    const placement::Edge& edge = graph_.edges[e];
    const bool in_source = out_[edge.from] == 1;
    const bool in_target = edge.to != graph_.exit && in_[edge.to] == 1;
    if (in_source && !(in_target && spares_flags_[edge.from])) return edge.from;
    if (in_target) return edge.to;
    return std::nullopt;
  }
  // Whether its counter has to spare the flags, at the price of four instructions more
  // (translate::emit_counter).
  bool spares_flags(size_t e) const {
    if (const std::optional<placement::NodeId> block = block_of(e)) return spares_flags_[*block];
    return (procedure_.flags_live_into(procedure_.edges[e]) & kFlags) != 0;
  }

 private:
  static constexpr uint8_t kFlags = isa::flag::kChangedByInc;
  const cfg::Procedure& procedure_;
  const placement::Graph& graph_;
  std::vector<uint32_t> in_, out_;
  std::vector<bool> spares_flags_;  // by block
};

// Weights in the order of the steps.  The rules of thumb decide only between edges that the steps
// do not tell apart: they add less than half a step.  What never ran stays below placement::kRan.
void set_steps(std::span<const uint8_t> steps, placement::Graph& graph) {
  static const std::array<double, 256> kWeights = [] {
    std::array<double, 256> weights{};
    for (size_t step = 0; step < weights.size(); ++step) {
      weights[step] = std::exp2(static_cast<double>(step) / kStepsForHalf);
    }
    return weights;
  }();
  constexpr double kHalfAStep = 0.02;
  for (size_t e = 0; e < steps.size(); ++e) {
    double& weight = graph.edges[e].weight;
    const double guessed = weight / (1 + weight);
    weight = steps[e] == 0 ? guessed / 2 : kWeights[steps[e]] * (1 + kHalfAStep * guessed);
  }
}

// Edges that need no jump if their target lies next.  A landing's block is entered from its call,
// where call and landing must be neighbours; whoever else goes there must jump.  `loop` and `jrcxz`
// cannot be turned round.
std::vector<bool> edges_that_may_fall(const cfg::Procedure& procedure,
                                      const placement::Graph& graph) {
  std::vector<bool> behind_call(procedure.blocks.size(), false);
  for (const cfg::Edge& edge : procedure.edges) {
    if (edge.kind == EdgeKind::kCallReturn) behind_call[edge.to] = true;
  }
  std::vector<bool> may_fall(graph.edges.size(), false);
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (edge.to == cfg::kExitBlock || edge.kind == EdgeKind::kTableJump) continue;
    const bool stiff = procedure.blocks[edge.from].end == isa::Flow::kCountedJump;
    if (stiff && edge.kind == EdgeKind::kTaken) continue;
    may_fall[e] = (edge.kind == EdgeKind::kCallReturn) == behind_call[edge.to];
  }
  return may_fall;
}

// Behind each call of the body lies what it comes back to: landings are entered when the call is
// linked.  What a call of the body never came back to moves to the body's end.
void keep_landings_in_body(const cfg::Procedure& procedure, translate::Plan& plan) {
  std::vector<uint32_t> place(plan.order.size());
  for (uint32_t i = 0; i < plan.order.size(); ++i) place[plan.order[i]] = i;
  for (uint32_t i = 0; i < plan.in_body; ++i) {
    const auto back =
        procedure.edge_of_kind(procedure.blocks[plan.order[i]], EdgeKind::kCallReturn);
    if (!back) continue;
    const uint32_t from = place[procedure.edges[*back].to];
    if (from < plan.in_body) continue;
    const auto rest = plan.order.begin() + plan.in_body;
    std::rotate(rest, plan.order.begin() + from, plan.order.begin() + from + 1);
    plan.in_body += 1;
    for (uint32_t k = plan.in_body - 1; k <= from; ++k) place[plan.order[k]] = k;
  }
}

// What is likely to run, by address, with the entry.
void leave_unlikely_apart(const cfg::Procedure& procedure, translate::Plan& plan) {
  const auto none = [](uint32_t) { return false; };
  plan.order = blocks_together(procedure, plan.followed, procedure.entry_block, none);
  plan.in_body = static_cast<uint32_t>(plan.order.size());
  std::vector<bool> is_in_body(procedure.blocks.size(), false);
  for (const uint32_t b : plan.order) is_in_body[b] = true;
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    if (!is_in_body[b]) plan.order.push_back(b);
  }
}

// A counter that has to spare the flags costs three times as much (measured, docs/design.md). Edges
// of less than `least` stay the light ones that they are.
void weigh_flags(const CountedAt& counted_at, double least, placement::Graph& graph) {
  constexpr double kCostOfFlags = 3;
  for (size_t e = 0; e + 1 < graph.edges.size(); ++e) {
    double& weight = graph.edges[e].weight;
    if (weight >= least && counted_at.spares_flags(e)) weight *= kCostOfFlags;
  }
}

// A counter on an edge that jumps is a jump more, so such an edge counts 1.7 times as much
// (measured, docs/design.md).
void weigh_jumps(const cfg::Procedure& procedure, const translate::Plan& plan,
                 const std::vector<bool>& may_fall, const CountedAt& counted_at,
                 placement::Graph& graph) {
  constexpr double kCostOfJump = 1.7;
  std::vector<uint32_t> next(procedure.blocks.size(), cfg::kExitBlock);
  for (size_t i = 1; i < plan.order.size(); ++i) next[plan.order[i - 1]] = plan.order[i];
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    const cfg::Edge& edge = procedure.edges[e];
    if (edge.kind != EdgeKind::kTaken && edge.kind != EdgeKind::kFallthrough) continue;
    const bool falls = plan.order.empty() ? edge.kind == EdgeKind::kFallthrough
                                          : may_fall[e] && next[edge.from] == edge.to;
    double& weight = graph.edges[e].weight;
    if (!falls && weight >= placement::kRan && !counted_at.block_of(e)) weight *= kCostOfJump;
  }
}

// Blocks that are to be counted by a register instead of the edges by which they lead to
// themselves: it takes an addition, or subtraction, whenever control enters or leaves them, so they
// must mostly lead to themselves.  Two that lead to each other cannot both be.
std::vector<bool> choose_inductions(const cfg::Procedure& procedure, const placement::Graph& graph,
                                    const std::function<bool(uint32_t block)>& is_inductive) {
  constexpr double kTurnsForEntry = 4;
  std::vector<bool> chosen(procedure.blocks.size(), false);
  if (!is_inductive) return chosen;
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    const std::optional<uint32_t> again = edge_to_itself(procedure, b);
    if (!again || graph.edges[*again].weight < placement::kRan) continue;
    double entries = 0;
    bool beside = false;
    for (size_t e = 0; e < procedure.edges.size(); ++e) {
      const cfg::Edge& edge = procedure.edges[e];
      if (edge.to == b && edge.from != b) entries += graph.edges[e].weight;
      beside = beside || (edge.to == b && chosen[edge.from]);
      beside = beside || (edge.from == b && edge.to != cfg::kExitBlock && chosen[edge.to]);
    }
    if (beside || graph.edges[*again].weight < kTurnsForEntry * entries) continue;
    chosen[b] = is_inductive(b);
  }
  return chosen;
}

// Where the counters of the chosen edges go.
void place_probes(const cfg::Procedure& procedure, const CountedAt& counted_at,
                  const std::vector<bool>& inductive, const placement::Plan& chosen,
                  const std::function<uint32_t()>& allocate, translate::Plan& plan) {
  for (size_t e = 0; e < procedure.edges.size(); ++e) {
    if (!chosen.edge_counted[e]) continue;
    const cfg::Edge& edge = procedure.edges[e];
    const bool by_register = edge.from == edge.to && inductive[edge.from];
    const std::optional<placement::NodeId> block =
        by_register ? std::optional(edge.from) : counted_at.block_of(e);
    int32_t& counter = block ? plan.block_counter[*block] : plan.edge_counter[e];
    if (counter == translate::kNoCounter) counter = static_cast<int32_t>(allocate());
  }
}

// With every block counted, most edges follow; where blocks and edges form a cycle (the paper's
// section 3.2: vertex counts do not always determine edge counts), one edge of it is counted too.
// A block's ways in sum up to its count and so do its ways out: two vertices of a graph in which
// the edges must form a forest.
void count_undetermined_edges(const placement::Graph& graph,
                              const std::function<uint32_t()>& allocate, translate::Plan& plan) {
  std::vector<uint32_t> parent(2 * static_cast<size_t>(graph.node_count));
  for (uint32_t i = 0; i < parent.size(); ++i) parent[i] = i;
  auto find = [&](uint32_t v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  // Of EXIT only in = out is known.
  auto in_half = [&](uint32_t v) { return v == graph.exit ? v : v + graph.node_count; };
  std::vector<uint32_t> order;
  for (uint32_t e = 0; e < graph.edges.size(); ++e) {
    if (graph.edges[e].role != EdgeRole::kMeasured) order.push_back(e);
  }
  // Edges without a place in the code, and heavy ones, go into the forest first.
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const bool virtual_a = graph.edges[a].role == EdgeRole::kVirtual;
    const bool virtual_b = graph.edges[b].role == EdgeRole::kVirtual;
    if (virtual_a != virtual_b) return virtual_a;
    return graph.edges[a].weight > graph.edges[b].weight;
  });
  for (const uint32_t e : order) {
    const uint32_t a = find(graph.edges[e].from);
    const uint32_t b = find(in_half(graph.edges[e].to));
    if (a != b) {
      parent[a] = b;
    } else {
      plan.edge_counter[e] = static_cast<int32_t>(allocate());
    }
  }
}

void count_all_blocks(const cfg::Procedure& procedure, placement::Graph graph,
                      const std::function<uint32_t()>& allocate, translate::Plan& plan) {
  for (int32_t& counter : plan.block_counter) counter = static_cast<int32_t>(allocate());
  force_uncountable(procedure, graph);
  for_each_open_call(procedure, [&](uint32_t, uint32_t back, uint32_t away) {
    graph.edges[back].role = EdgeRole::kMeasured;
    graph.edges[away].role = EdgeRole::kMeasured;
    plan.edge_counter[back] = static_cast<int32_t>(allocate());
  });
  count_undetermined_edges(graph, allocate, plan);
}

void count_chords(const cfg::Procedure& procedure, const CountedAt& counted_at,
                  const std::vector<bool>& inductive, placement::Graph& graph,
                  const std::function<uint32_t()>& allocate, translate::Plan& plan) {
  for_each_open_call(procedure, [&](uint32_t, uint32_t back, uint32_t away) {
    graph.edges[back].role = EdgeRole::kMeasured;
    graph.edges[away].role = EdgeRole::kMeasured;
  });
  const placement::Plan chosen = placement::place_counters(graph, placement::Mode::kEdges);
  place_probes(procedure, counted_at, inductive, chosen, allocate, plan);
  for_each_open_call(procedure, [&](uint32_t block, uint32_t back, uint32_t) {
    plan.edge_counter[back] = static_cast<int32_t>(allocate());
    if (plan.block_counter[block] == translate::kNoCounter) {
      plan.block_counter[block] = static_cast<int32_t>(allocate());
    }
  });
}

// Whether anything is known of the procedure but the rules of thumb.
bool set_measured_weights(const cfg::Procedure& procedure, PlacementKind kind,
                          const MeasuredWeights& measured, placement::Graph& graph) {
  if (kind == PlacementKind::kFeedback) {
    return measured.feedback && set_feedback_weights(procedure, measured.feedback, graph);
  }
  const auto ran = [](uint8_t step) { return step != 0; };
  if (std::ranges::none_of(measured.steps, ran)) return false;
  CHECK(measured.steps.size() == procedure.edges.size()) << measured.steps.size() << " steps";
  set_steps(measured.steps, graph);
  return true;
}

}  // namespace

translate::Plan make_plan(const cfg::Procedure& procedure, const cfg::CodeView& view,
                          PlacementKind kind, const MeasuredWeights& measured,
                          const std::function<uint32_t()>& allocate) {
  translate::Plan plan;
  plan.block_counter.assign(procedure.blocks.size(), translate::kNoCounter);
  plan.edge_counter.assign(procedure.edges.size(), translate::kNoCounter);
  if (kind == PlacementKind::kNone) return plan;
  placement::Graph graph = make_graph(procedure);
  if (measured.from_callers) graph.edges.back().role = EdgeRole::kMeasured;
  set_likelihoods(procedure, view, graph);
  placement::set_static_weights(graph);
  if (kind == PlacementKind::kBlocks) {
    count_all_blocks(procedure, graph, allocate, plan);
    return plan;
  }
  const bool in_parts = measured.in_parts && kind == PlacementKind::kEdges;
  if (in_parts) plan.followed = followed_edges(procedure, graph, measured.followed);
  const CountedAt counted_at(procedure, graph);
  const bool is_measured = set_measured_weights(procedure, kind, measured, graph);
  std::vector<bool> inductive(procedure.blocks.size(), false);
  if (is_measured && kind == PlacementKind::kEdges) {
    inductive = choose_inductions(procedure, graph, measured.is_inductive);
  }
  if (is_measured) {
    const std::vector<bool> may_fall = edges_that_may_fall(procedure, graph);
    if (measured.order) {
      placement::BlockOrder order = placement::order_blocks(graph, may_fall);
      plan.order = std::move(order.nodes);
      plan.in_body = order.hot;
      keep_landings_in_body(procedure, plan);
    }
    if (kind == PlacementKind::kEdges) {
      weigh_jumps(procedure, plan, may_fall, counted_at, graph);
    }
  } else if (in_parts) {
    leave_unlikely_apart(procedure, plan);
  }
  if (in_parts && measured.is_over && !plan.order.empty()) plan.in_body = 0;
  // Exact weights are those of the paper, which asks for the fewest increments.
  if (kind == PlacementKind::kEdges) {
    weigh_flags(counted_at, is_measured ? placement::kRan : 0, graph);
  }
  count_chords(procedure, counted_at, inductive, graph, allocate, plan);
  return plan;
}

void leave_entry_alone_in_body(const cfg::Procedure& procedure, LeftOut left_out,
                               translate::Plan& plan) {
  plan.followed.clear();
  if (left_out == LeftOut::kInParts) plan.followed = edges_that_must_be_followed(procedure);
  plan.order.clear();
  plan.order.push_back(procedure.entry_block);
  for (uint32_t b = 0; b < procedure.blocks.size(); ++b) {
    if (b != procedure.entry_block) plan.order.push_back(b);
  }
  plan.in_body = 1;
  keep_landings_in_body(procedure, plan);
}

}  // namespace tally::engine
