// Every count from a few: conservation of flow, solved exactly.
//
// Problem.  Some edges, and perhaps some nodes, were counted.  Each node v says
//
//     count(v) = sum(in) + entered        and        count(v) = sum(out) + left
//
// and every count that follows from these equations is to be found, no other, and without rounding.
//
// Idea.  Split each node into an in-half and an out-half joined by an arc for its count.  Then each
// equation is conservation of flow at one half, and each unknown count is one arc of a network:
//
//     A --.     .--> C          A_out --.                            .--> C_in
//          > v <         is             >--> v_in --count(v)--> v_out <
//     B --'     '--> D          B_out --'                            '--> D_in
//
// The paper (section 3.1) takes a leaf of the spanning tree, solves its one unknown edge, and goes
// on with the smaller tree.  Here the postorder of a depth-first search visits leaf by leaf, and
// the search tells as well where the unknown arcs form a cycle: flow could go round the cycle
// unseen, so its arcs have no unique solution.  An arc on no cycle (a bridge) is the only way
// between the two parts that it joins, so it carries what one part lacks.  That is complete: an arc
// is determined by conservation if and only if it is a bridge.  With the counters of a spanning
// tree's chords every unknown arc is a bridge; with counters in the blocks some edges are not.
//
// Most graphs need no search.  Where the unknown arcs form a forest, as they do around the chords
// of a spanning tree, halves with one unknown arc are peeled off until nothing is left; such a half
// knows its arc as the exclusive or of the numbers of all unknown arcs at it, so nobody has to look
// for it.  Only if that leaves something over, or if anything does not add up, is there a search,
// from the beginning: where a contradiction shows depends on the way to it.
//
// One thing more is known of counts: they are not negative.  If the unknown edges on one side of a
// block must sum up to zero, each is zero (code that never ran).  That may open cycles, so the
// search is repeated as long as such blocks turn up.
//
// EXIT.  Every execution comes from EXIT and returns there, so EXIT obeys the same equations, with
// EXIT->root as its out-edge.  Abnormal flow breaks that rule, so it is mirrored at EXIT, as in the
// paper's Figure 4: what left at v acts like an edge v->EXIT, what entered there like EXIT->v.
// Hence count(EXIT) is all that ended, in whatever way, and EXIT->root is only what began at root.
//
// Arithmetic.  128-bit signed, so that a wrong counter yields a negative number and not a huge one.
// A derived count is a sum of what some halves lack, and settling it makes the sum of all these
// lacks' magnitudes no larger, so 2^105 bounds everything.  A count that is negative or that no
// uint64_t holds is never handed out: it is kUnknown, and reported.
//
// Checking.  Equations that were not needed to solve are the evidence: one that fails makes its
// node unbalanced.  Conservation cannot place the blame, so `node` is where the contradiction came
// to light, not necessarily where the wrong counter is.
#include <algorithm>
#include <limits>

#include "placement/placement.h"

namespace tally::placement {
namespace {

__extension__ using Wide = __int128;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// Arcs are numbered: the edges by EdgeId, then the nodes' counts.  Halves: in 2v, out 2v + 1.
using ArcId = uint32_t;
using HalfId = uint32_t;

struct Arc {
  HalfId from = 0;
  HalfId to = 0;
  Wide value = 0;
  Origin origin = Origin::kUnknown;
};

// State of the search at one half.
struct Half {
  Wide deficit = 0;  // known flow out minus known flow in
  uint32_t order = kNone;
  uint32_t lowest = kNone;  // earliest half that its subtree reaches by an arc outside the tree
  ArcId parent_arc = kNone;
  uint32_t next_link = 0;
  Wide lack = 0;  // deficits of its subtree
};

class Solver {
 public:
  Solver(const Graph& graph, const Measured& measured, std::span<const AbnormalFlow> abnormal)
      : graph_(graph), halves_(size_t{2} * graph.node_count) {
    make_arcs();
    for (const AbnormalFlow& flow : abnormal) add_abnormal(flow);
    for (EdgeId id = 0; id < measured.edges.size(); ++id) {
      if (measured.edges[id]) settle(id, *measured.edges[id], Origin::kMeasured);
    }
    for (NodeId node = 0; node < measured.nodes.size(); ++node) {
      if (measured.nodes[node]) settle(count_arc(node), *measured.nodes[node], Origin::kMeasured);
    }
  }

  Solution run() {
    do {
      solve_bridges();
    } while (settle_zeros());
    collect();
    for (NodeId node = 0; node < graph_.node_count; ++node) check(node);
    return std::move(solution_);
  }

 private:
  static HalfId in_half(NodeId node) { return 2 * node; }
  static HalfId out_half(NodeId node) { return 2 * node + 1; }
  ArcId count_arc(NodeId node) const { return static_cast<ArcId>(graph_.edges.size()) + node; }
  bool known(ArcId arc) const { return arcs_[arc].origin != Origin::kUnknown; }

  void make_arcs() {
    arcs_.reserve(graph_.edges.size() + graph_.node_count);
    for (const Edge& edge : graph_.edges) {
      arcs_.push_back({.from = out_half(edge.from), .to = in_half(edge.to)});
    }
    for (NodeId node = 0; node < graph_.node_count; ++node) {
      arcs_.push_back({.from = in_half(node), .to = out_half(node)});
    }
  }

  void add_abnormal(const AbnormalFlow& flow) {
    halves_[in_half(flow.node)].deficit -= flow.entered;
    halves_[out_half(graph_.exit)].deficit += flow.entered;
    halves_[out_half(flow.node)].deficit += flow.left;
    halves_[in_half(graph_.exit)].deficit -= flow.left;
  }

  void settle(ArcId id, Wide value, Origin origin) {
    Arc& arc = arcs_[id];
    arc.value = value;
    arc.origin = origin;
    halves_[arc.from].deficit += value;
    halves_[arc.to].deficit -= value;
    if (value < 0) report(Imbalance::Kind::kNegative, arc.from / 2, value);
  }

  // --- conservation ---------------------------------------------------------------------------

  void solve_bridges() {
    index_unknown();
    solved_.clear();
    clock_ = 0;
    for (HalfId half = 0; half < halves_.size(); ++half) {
      if (halves_[half].order == kNone) search(half);
    }
    // Only now, since settling changes the deficits that the search sums up.
    for (const Solved& solved : solved_) settle(solved.arc, solved.value, Origin::kDerived);
  }

  // The unknown arcs at each half, and a fresh state of the search.
  void index_unknown() {
    first_link_.assign(halves_.size() + 1, 0);
    for (const Arc& arc : arcs_) {
      if (arc.origin != Origin::kUnknown) continue;
      ++first_link_[arc.from];
      ++first_link_[arc.to];
    }
    uint32_t total = 0;
    for (uint32_t& first : first_link_) {
      total += first;
      first = total;
    }
    links_.resize(total);
    for (ArcId id = 0; id < arcs_.size(); ++id) {
      if (known(id)) continue;
      links_[--first_link_[arcs_[id].from]] = id;
      links_[--first_link_[arcs_[id].to]] = id;
    }
    for (HalfId half = 0; half < halves_.size(); ++half) {
      halves_[half] = {.deficit = halves_[half].deficit, .next_link = first_link_[half]};
    }
  }

  void search(HalfId start) {
    discover(start, kNone);
    while (!path_.empty()) {
      const HalfId current = path_.back();
      Half& half = halves_[current];
      if (half.next_link == first_link_[current + size_t{1}]) {
        leave(current);
        continue;
      }
      const ArcId arc = links_[half.next_link++];
      if (arc == half.parent_arc) continue;
      const HalfId other = arcs_[arc].from == current ? arcs_[arc].to : arcs_[arc].from;
      if (halves_[other].order == kNone) {
        discover(other, arc);
      } else {
        half.lowest = std::min(half.lowest, halves_[other].order);
      }
    }
  }

  void discover(HalfId id, ArcId parent_arc) {
    Half& half = halves_[id];
    half.order = half.lowest = clock_++;
    half.parent_arc = parent_arc;
    half.lack = half.deficit;
    path_.push_back(id);
  }

  // Every half below is done: the arc to the parent is a bridge unless something below reaches past
  // it, and then it carries what the subtree lacks.
  void leave(HalfId id) {
    path_.pop_back();
    if (path_.empty()) return;
    const Half& half = halves_[id];
    Half& parent = halves_[path_.back()];
    parent.lowest = std::min(parent.lowest, half.lowest);
    parent.lack += half.lack;
    if (half.lowest < half.order) return;
    const bool flows_in = arcs_[half.parent_arc].to == id;
    solved_.push_back({half.parent_arc, flows_in ? half.lack : -half.lack});
  }

  // --- counts are not negative ----------------------------------------------------------------

  // True if something became known by it.
  bool settle_zeros() {
    bool found = false;
    for (ArcId id = 0; id < graph_.edges.size(); ++id) {
      if (known(id) || !(runs_dry(arcs_[id].from) || runs_dry(arcs_[id].to))) continue;
      settle(id, 0, Origin::kDerived);
      found = true;
    }
    return found;
  }

  // All unknown arcs of the half are edges, hence of one direction, and sum up to zero.
  bool runs_dry(HalfId half) const {
    return known(count_arc(half / 2)) && halves_[half].deficit == 0;
  }

  // --- results --------------------------------------------------------------------------------

  void collect() {
    solution_.edges.reserve(graph_.edges.size());
    solution_.nodes.reserve(graph_.node_count);
    unknown_at_.assign(halves_.size(), 0);
    for (ArcId id = 0; id < arcs_.size(); ++id) {
      if (!known(id)) {
        ++unknown_at_[arcs_[id].from];
        ++unknown_at_[arcs_[id].to];
      }
      auto& counts = id < graph_.edges.size() ? solution_.edges : solution_.nodes;
      counts.push_back(to_count(arcs_[id]));
    }
  }

  Count to_count(const Arc& arc) {
    constexpr Wide kLargest = std::numeric_limits<uint64_t>::max();
    if (arc.origin == Origin::kUnknown || arc.value < 0) return {};  // reported elsewhere
    if (arc.value > kLargest) {
      report(Imbalance::Kind::kUnknown, arc.from / 2, 0);
      return {};
    }
    return {static_cast<uint64_t>(arc.value), arc.origin};
  }

  void check(NodeId node) {
    const bool in_complete = unknown_at_[in_half(node)] == 0;
    const bool out_complete = unknown_at_[out_half(node)] == 0;
    const Wide in_excess = -contradiction(in_half(node));
    const Wide out_excess = -contradiction(out_half(node));
    if (in_excess != 0 || out_excess != 0) {
      // A node whose edges agree with each other but not with its own counter: in minus counter.
      const Wide excess = in_excess + out_excess;
      report(Imbalance::Kind::kUnbalanced, node, excess != 0 ? excess : in_excess);
    }
    check_unknown(node, in_complete, out_complete);
  }

  // What cannot be zero at a half but must: its deficit if all is known around it, and the sum of
  // its component's deficits if the search began here.
  Wide contradiction(HalfId id) const {
    const Half& half = halves_[id];
    if (unknown_at_[id] == 0) return half.deficit;
    return half.parent_arc == kNone ? half.lack : 0;
  }

  // Each unknown edge is reported at its source, an unknown count at its node.
  void check_unknown(NodeId node, bool in_complete, bool out_complete) {
    if (in_complete && out_complete) return;
    if (!known(count_arc(node)) || !out_complete) report(Imbalance::Kind::kUnknown, node, 0);
    if (!known(count_arc(node))) return;
    // The unknown edges of a side are what its known ones lack; together they cannot be negative.
    const Wide in_lack = in_complete ? 0 : halves_[in_half(node)].deficit;
    const Wide out_lack = out_complete ? 0 : -halves_[out_half(node)].deficit;
    if (in_lack < 0) report(Imbalance::Kind::kNegative, node, -in_lack);
    if (out_lack < 0) report(Imbalance::Kind::kNegative, node, out_lack);
  }

  void report(Imbalance::Kind kind, NodeId node, Wide excess) {
    constexpr Wide kMin = std::numeric_limits<int64_t>::min();
    constexpr Wide kMax = std::numeric_limits<int64_t>::max();
    const Imbalance imbalance{kind, node, static_cast<int64_t>(std::clamp(excess, kMin, kMax))};
    solution_.imbalances.push_back(imbalance);
  }

  struct Solved {
    ArcId arc;
    Wide value;
  };

  const Graph& graph_;
  std::vector<Arc> arcs_;
  std::vector<Half> halves_;
  std::vector<uint32_t> first_link_;  // by HalfId, into links_; one more at the end
  std::vector<ArcId> links_;
  std::vector<HalfId> path_;
  std::vector<Solved> solved_;
  std::vector<uint32_t> unknown_at_;  // by HalfId: unknown arcs when all is done
  uint32_t clock_ = 0;
  Solution solution_;
};

// What was measured sums up to less than this where 64 bits hold all that comes out of it.
constexpr uint64_t kPeeledMax = uint64_t{1} << 58;

// Solves a graph whose unknown arcs form a forest and in which there is no contradiction.
class Peeler {
 public:
  Peeler(const Graph& graph, const Measured& measured)
      : graph_(graph), measured_(measured), halves_(size_t{2} * graph.node_count) {}

  std::optional<Solution> solve(std::span<const AbnormalFlow> abnormal) {
    solution_.edges.resize(graph_.edges.size());
    solution_.nodes.resize(graph_.node_count);
    for (ArcId arc = 0; arc < arcs(); ++arc) begin(arc);
    for (const AbnormalFlow& flow : abnormal) add_abnormal(flow);
    if (all_measured_ >= kPeeledMax) return std::nullopt;
    for (HalfId half = 0; half < halves_.size(); ++half) peel(half);
    if (left_over_ != 0 || any_negative_) return std::nullopt;
    const bool balanced =
        std::ranges::all_of(halves_, [](const Half& half) { return half.deficit == 0; });
    if (!balanced) return std::nullopt;
    return std::move(solution_);
  }

 private:
  struct Half {
    int64_t deficit = 0;  // known flow out minus known flow in
    uint32_t unknown = 0;
    ArcId unknown_xor = 0;
  };

  ArcId edges() const { return static_cast<ArcId>(graph_.edges.size()); }
  ArcId arcs() const { return edges() + graph_.node_count; }
  HalfId from(ArcId arc) const {
    return arc < edges() ? 2 * graph_.edges[arc].from + 1 : 2 * (arc - edges());
  }
  HalfId to(ArcId arc) const {
    return arc < edges() ? 2 * graph_.edges[arc].to : 2 * (arc - edges()) + 1;
  }
  Count& count(ArcId arc) {
    return arc < edges() ? solution_.edges[arc] : solution_.nodes[arc - edges()];
  }

  void measure(uint64_t value) {
    // Saturating, so that what is too large stays so.
    if (__builtin_add_overflow(all_measured_, value, &all_measured_)) all_measured_ = UINT64_MAX;
  }

  void begin(ArcId arc) {
    const auto& known = arc < edges() ? measured_.edges[arc] : measured_.nodes[arc - edges()];
    if (known) {
      measure(*known);
      count(arc) = {*known, Origin::kMeasured};
      halves_[from(arc)].deficit += static_cast<int64_t>(*known & (kPeeledMax - 1));
      halves_[to(arc)].deficit -= static_cast<int64_t>(*known & (kPeeledMax - 1));
      return;
    }
    ++left_over_;
    for (const HalfId half : {from(arc), to(arc)}) {
      ++halves_[half].unknown;
      halves_[half].unknown_xor ^= arc;
    }
  }

  void add_abnormal(const AbnormalFlow& flow) {
    measure(flow.entered);
    measure(flow.left);
    const auto entered = static_cast<int64_t>(flow.entered & (kPeeledMax - 1));
    const auto left = static_cast<int64_t>(flow.left & (kPeeledMax - 1));
    halves_[2 * flow.node].deficit -= entered;
    halves_[2 * graph_.exit + 1].deficit += entered;
    halves_[2 * flow.node + 1].deficit += left;
    halves_[2 * graph_.exit].deficit -= left;
  }

  // From a half with one unknown arc along the arcs that become known by it.
  void peel(HalfId half) {
    while (halves_[half].unknown == 1) {
      const ArcId arc = halves_[half].unknown_xor;
      const bool flows_in = to(arc) == half;
      const HalfId other = flows_in ? from(arc) : to(arc);
      const int64_t value = flows_in ? halves_[half].deficit : -halves_[half].deficit;
      any_negative_ |= value < 0;
      count(arc) = {static_cast<uint64_t>(value), Origin::kDerived};
      halves_[half] = {};
      halves_[other].deficit += flows_in ? value : -value;
      halves_[other].unknown -= 1;
      halves_[other].unknown_xor ^= arc;
      --left_over_;
      half = other;
    }
  }

  const Graph& graph_;
  const Measured& measured_;
  std::vector<Half> halves_;
  uint32_t left_over_ = 0;  // unknown arcs
  uint64_t all_measured_ = 0;
  bool any_negative_ = false;
  Solution solution_;
};

Status check_input(const Graph& graph, const Measured& measured,
                   std::span<const AbnormalFlow> abnormal) {
  if (measured.edges.size() != graph.edges.size()) {
    return make_error("{} edge counts for a graph of {} edges", measured.edges.size(),
                      graph.edges.size());
  }
  if (measured.nodes.size() != graph.node_count) {
    return make_error("{} block counts for a graph of {} blocks", measured.nodes.size(),
                      graph.node_count);
  }
  // Halves are numbered up to twice the nodes, links up to twice the arcs.
  if (graph.edges.size() + graph.node_count >= kNone / 2) {
    return make_error("a graph of {} blocks and {} edges is too large", graph.node_count,
                      graph.edges.size());
  }
  if (graph.exit >= graph.node_count) {
    return make_error("EXIT is block {} of {}", graph.exit, graph.node_count);
  }
  for (const Edge& edge : graph.edges) {
    if (edge.from < graph.node_count && edge.to < graph.node_count) continue;
    return make_error("edge {}->{} in a graph of {} blocks", edge.from, edge.to, graph.node_count);
  }
  for (const AbnormalFlow& flow : abnormal) {
    if (flow.node < graph.node_count) continue;
    return make_error("abnormal flow at block {} of {}", flow.node, graph.node_count);
  }
  return Ok{};
}

}  // namespace

Result<Solution> propagate(const Graph& graph, const Measured& measured,
                           std::span<const AbnormalFlow> abnormal) {
  TRY(check_input(graph, measured, abnormal));
  if (auto peeled = Peeler(graph, measured).solve(abnormal)) return std::move(*peeled);
  return Solver(graph, measured, abnormal).run();
}

}  // namespace tally::placement
