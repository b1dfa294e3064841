// Expected edge counts from the shape of the graph alone.
//
// Problem.  The spanning tree wants to know which edges are hot before anything has run.
//
// Idea (section 5.1).  Push one execution through the graph in topological order, loops aside:
//   - A loop entered N times sends 10 N round its back edges, so its header weighs 11 N.  (The
//     paper's Figure 1 confirms that reading: its back edge C->P weighs 10 and P weighs 11.)
//   - The N leave through the E exit edges, N/E each.
//   - Whatever a block has left after its exits is split among its other edges: evenly, but for
//     two-way branches, where signs speak against one of the two.  Each sign divides its odds:
//       it jumps forward over more than eight blocks, past the next one          0.5
//       ... over more than 32                                                    0.25
//       it leads to a call, met before any other branch and reached only so      0.25
//       ... or reached in other ways as well                                     0.5
//       whatever the machine code says (Edge::odds, see cache/likelihood.h)
//     Compilers put what is likely next, and fast paths do their work themselves: what calls is the
//     slow path, the growing table, the message (Ball and Larus, "Branch prediction for free").
//     So what the tree counts is incremented 12 % less often in the mean of the benchmark's
//     programs, and 8 % in that of 31 others, than if all branches were even (docs/design.md).
//
//        1                 P is entered once, so it weighs 11; two exits get 0.5 each.
//        |
//   +--> P --0.5--> EXIT   P->Q gets 11 - 0.5 = 10.5, Q's two edges 5.25 each,
//   |    | 10.5      ^     R->C gets 10.5 - 0.5 = 10, and 10 return along C->P.
//   |    Q           |
//   10  / \ 5.25     |0.5
//   |  A   B         |
//   |   \ / 5.25     |
//   C <--R ----------+
//
// An exit edge gets less than its share if its block is colder than that: leaving is never likelier
// than the block's other branches.  An edge that leaves several loops at once gets the smallest
// share that any of them would give it; the loops inside give what remains to their other exits.
// So flow is conserved at every block but a loop's header, where at most one part in eleven too
// much returns, or less than went out when a loop inside holds some back (an endless one: all).
//
// Loops are found in one depth-first search by the method of Wei, Mao, Zou and Chen ("A New
// Algorithm for Identifying Loops in Decompilation", SAS 2007), which also gives irreducible loops
// a header (the block first reached) and a place in the nesting.  For reducible graphs the result
// is the natural loops, those of one header merged.
//
// Limits.  Time is linear but for the walks up the nesting of loops, O(edges * depth) at worst.
// Edges out of EXIT are entries, not branches: each carries one execution in.  Blocks that no entry
// reaches weigh 0.
#include <algorithm>
#include <array>
#include <limits>

#include "placement/placement.h"

namespace tally::placement {
namespace {

constexpr double kLoopIterations = 10;
constexpr NodeId kFarBlocks = 8;
constexpr double kFar = 0.5;
constexpr NodeId kVeryFarBlocks = 32;
constexpr double kVeryFar = 0.25;
constexpr double kCalls = 0.25;
constexpr double kCallsForOthers = 0.5;
// Three hundred nested loops would overflow a double; from here on loops multiply no more.
constexpr double kWeightCap = 1e100;

// An edge that leaves many nested loops is listed with the outermost of them only.  To the others
// it is a millionth of their entries; listing it everywhere would cost quadratic memory.
constexpr uint32_t kListsPerExit = 6;

constexpr double kNotAnExit = -1;
constexpr double kExitWithoutShare = std::numeric_limits<double>::infinity();
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

struct Branch {
  EdgeId edge;
  NodeId to;
};

struct Block {
  double weight = 0;
  uint32_t path_position = 0;  // in the search's current path, from 1; 0 when not on it
  uint32_t finished = kNone;   // postorder number
  uint32_t first_exit = kNone;
  uint32_t ways_in = 0;
  bool reached = false;
  bool is_header = false;
  bool calls = false;  // once control is here, before it branches or meets other control
};

// Apart from the rest, since most of the time goes into walking outwards from loop to loop.
struct Nesting {
  NodeId outer = kNone;  // header of the innermost loop around it, not counting its own
  uint32_t depth = 0;    // of a header: loops around it, itself included
};

// One exit edge in the list of one of the loops that it leaves.
struct ExitUse {
  EdgeId edge;
  uint32_t next;
};

// One frame of the depth-first search.
struct Visit {
  NodeId node;
  uint32_t next_branch;
};

class Weigher {
 public:
  explicit Weigher(Graph& graph)
      : graph_(graph),
        blocks_(graph.node_count),
        nesting_(graph.node_count),
        first_branch_(graph.node_count + size_t{1}) {}

  void run() {
    index_branches();
    find_loops();
    number_depths();
    find_exits();
    find_calls();
    enter();
    for (size_t i = postorder_.size(); i-- > 0;) distribute(postorder_[i]);
  }

 private:
  // Adjacency by counting sort, so that a graph costs a handful of allocations.
  void index_branches() {
    for (const Edge& edge : graph_.edges) {
      CHECK(edge.from < graph_.node_count && edge.to < graph_.node_count)
          << "edge " << edge.from << "->" << edge.to << " of " << graph_.node_count << " nodes";
      CHECK(edge.odds > 0) << "edge " << edge.from << "->" << edge.to << ": odds " << edge.odds;
      ++blocks_[edge.to].ways_in;
      if (edge.from != graph_.exit) ++first_branch_[edge.from];
    }
    uint32_t total = 0;
    for (uint32_t& first : first_branch_) {
      total += first;
      first = total;
    }
    branches_.resize(total);
    for (size_t i = graph_.edges.size(); i-- > 0;) {
      const Edge& edge = graph_.edges[i];
      if (edge.from == graph_.exit) continue;
      branches_[--first_branch_[edge.from]] = {static_cast<EdgeId>(i), edge.to};
    }
  }

  void find_loops() {
    postorder_.reserve(graph_.node_count);
    path_.reserve(graph_.node_count);
    search(graph_.root);
    for (const Edge& edge : graph_.edges) {
      if (edge.from == graph_.exit) search(edge.to);
    }
  }

  void search(NodeId start) {
    if (blocks_[start].reached) return;
    discover(start);
    while (!path_.empty()) {
      Visit& visit = path_.back();
      if (visit.next_branch < first_branch_[visit.node + size_t{1}]) {
        follow(visit.node, branches_[visit.next_branch++].to);
      } else {
        leave(visit.node);
      }
    }
  }

  void discover(NodeId node) {
    path_.push_back({node, first_branch_[node]});
    blocks_[node].reached = true;
    blocks_[node].path_position = static_cast<uint32_t>(path_.size());
  }

  void leave(NodeId node) {
    Block& block = blocks_[node];
    block.path_position = 0;
    block.finished = static_cast<uint32_t>(postorder_.size());
    postorder_.push_back(node);
    path_.pop_back();
    if (!path_.empty()) put_in_loop(path_.back().node, nesting_[node].outer);
  }

  void follow(NodeId from, NodeId to) {
    Block& target = blocks_[to];
    if (!target.reached) {
      discover(to);
    } else if (target.path_position != 0) {
      target.is_header = true;
      put_in_loop(from, to);
    } else {
      // `to` is finished.  Those of its loops whose headers are still open contain `from` as well;
      // those that are closed are entered here past their header.
      NodeId header = nesting_[to].outer;
      while (header != kNone && blocks_[header].path_position == 0) header = nesting_[header].outer;
      put_in_loop(from, header);
    }
  }

  // Records that `node` lies in the loop of `header`, keeping the chain of loops around it sorted
  // by nesting.  Both are on the path, and so is every header around them.
  void put_in_loop(NodeId node, NodeId header) {
    if (header == kNone || node == header) return;
    while (nesting_[node].outer != kNone) {
      const NodeId around = nesting_[node].outer;
      if (around == header) return;
      if (blocks_[around].path_position < blocks_[header].path_position) {
        nesting_[node].outer = header;
        node = header;
        header = around;
      } else {
        node = around;
      }
    }
    nesting_[node].outer = header;
  }

  // A header precedes everything in its loop in reverse postorder.
  void number_depths() {
    for (size_t i = postorder_.size(); i-- > 0;) {
      Nesting& nesting = nesting_[postorder_[i]];
      if (blocks_[postorder_[i]].is_header) nesting.depth = depth_of(nesting.outer) + 1;
    }
  }

  uint32_t depth_of(NodeId loop) const { return loop == kNone ? 0 : nesting_[loop].depth; }

  NodeId innermost_loop(NodeId node) const {
    return blocks_[node].is_header ? node : nesting_[node].outer;
  }

  void find_exits() {
    for (EdgeId id = 0; id < graph_.edges.size(); ++id) {
      Edge& edge = graph_.edges[id];
      edge.weight = 0;
      if (edge.from == graph_.exit || !blocks_[edge.from].reached) continue;
      edge.leaves_loop = list_exits(id);
      edge.weight = edge.leaves_loop ? kExitWithoutShare : kNotAnExit;
    }
  }

  // Puts the edge on the lists of the loops that it leaves; false if there is none.
  bool list_exits(EdgeId id) {
    NodeId from = innermost_loop(graph_.edges[id].from);
    NodeId to = innermost_loop(graph_.edges[id].to);
    // Up to the loop around both.  Of those it leaves, the outermost are kept.
    std::array<NodeId, kListsPerExit> left{};
    uint32_t leaves = 0;
    while (from != to) {
      const uint32_t depth_from = depth_of(from);
      const uint32_t depth_to = depth_of(to);
      if (depth_from >= depth_to) {
        left[leaves++ % kListsPerExit] = from;
        from = nesting_[from].outer;
      }
      if (depth_to >= depth_from) to = nesting_[to].outer;
    }
    for (uint32_t i = leaves - std::min(leaves, kListsPerExit); i < leaves; ++i) {
      Block& header = blocks_[left[i % kListsPerExit]];
      uses_.push_back({id, header.first_exit});
      header.first_exit = static_cast<uint32_t>(uses_.size() - 1);
    }
    return leaves > 0;
  }

  void find_calls() {
    if (graph_.calls.empty()) return;
    CHECK(graph_.calls.size() == graph_.node_count) << graph_.calls.size() << " nodes";
    for (const NodeId node : postorder_) {
      Block& block = blocks_[node];
      block.calls = graph_.calls[node];
      const uint32_t begin = first_branch_[node];
      if (block.calls || first_branch_[node + size_t{1}] - begin != 1) continue;
      const Block& next = blocks_[branches_[begin].to];
      // Those that are not finished yet have another way in, from which they were reached.
      block.calls = next.ways_in == 1 && next.calls;
    }
  }

  void enter() {
    bool root_entered = false;
    for (Edge& edge : graph_.edges) {
      if (edge.from != graph_.exit || edge.to == graph_.exit) continue;
      edge.weight = 1;
      blocks_[edge.to].weight += 1;
      root_entered |= edge.to == graph_.root;
    }
    if (!root_entered) blocks_[graph_.root].weight += 1;
  }

  void distribute(NodeId node) {
    Block& block = blocks_[node];
    if (block.is_header) {
      share_out(block.first_exit, block.weight);
      block.weight =
          std::min(block.weight * (1 + kLoopIterations), std::max(block.weight, kWeightCap));
    }
    split(node);
  }

  // Gives each exit of a loop entered `entries` times its share.  Outer loops have been here
  // before, so an exit that they own too has one already and may only lose.
  void share_out(uint32_t first_use, double entries) {
    uint32_t exits = 0;
    uint32_t own_exits = 0;
    for (uint32_t use = first_use; use != kNone; use = uses_[use].next) {
      ++exits;
      if (graph_.edges[uses_[use].edge].weight == kExitWithoutShare) ++own_exits;
    }
    double rest = entries;
    for (uint32_t use = first_use; use != kNone; use = uses_[use].next) {
      double& share = graph_.edges[uses_[use].edge].weight;
      if (share == kExitWithoutShare) continue;
      share = std::min(share, entries / exits);
      rest -= share;
    }
    const double own_share = std::max(rest, 0.0) / std::max(own_exits, 1u);
    for (uint32_t use = first_use; use != kNone; use = uses_[use].next) {
      double& share = graph_.edges[uses_[use].edge].weight;
      if (share == kExitWithoutShare) share = own_share;
    }
  }

  // Splits the weight of a block among its edges.
  void split(NodeId node) {
    const uint32_t begin = first_branch_[node];
    const uint32_t end = first_branch_[node + size_t{1}];
    if (begin == end) return;
    const double even = blocks_[node].weight / (end - begin);
    const bool two_ways = end - begin == 2;
    std::array<double, 2> odds = {1, 1};
    if (two_ways) odds = {odds_of(node, begin), odds_of(node, begin + 1)};
    const auto odds_at = [&](uint32_t i) { return two_ways ? odds[i - begin] : 1; };
    double rest = blocks_[node].weight;
    double others = 0;
    for (uint32_t i = begin; i < end; ++i) {
      double& weight = graph_.edges[branches_[i].edge].weight;
      if (weight == kNotAnExit) {
        others += odds_at(i);
      } else {
        weight = std::min(weight, even);
        rest -= weight;
      }
    }
    rest = std::max(rest, 0.0);
    for (uint32_t i = begin; i < end; ++i) {
      double& weight = graph_.edges[branches_[i].edge].weight;
      if (weight == kNotAnExit) weight = rest * (odds_at(i) / others);
      // Only forward: a back edge's flow is in the header's weight already.
      Block& target = blocks_[branches_[i].to];
      if (target.finished < blocks_[node].finished) target.weight += weight;
    }
  }

  // Of a branch out of a block with two.
  double odds_of(NodeId node, uint32_t branch) const {
    const uint32_t begin = first_branch_[node];
    const NodeId to = branches_[branch].to;
    double odds = graph_.edges[branches_[branch].edge].odds;
    if (to == graph_.exit) return odds;
    if (blocks_[to].calls) odds *= blocks_[to].ways_in == 1 ? kCalls : kCallsForOthers;
    const NodeId other = branches_[branch == begin ? begin + 1 : begin].to;
    if (other == node + 1 && to > node + kFarBlocks) {
      odds *= to > node + kVeryFarBlocks ? kVeryFar : kFar;
    }
    return odds;
  }

  Graph& graph_;
  std::vector<Block> blocks_;
  std::vector<Nesting> nesting_;
  std::vector<uint32_t> first_branch_;  // by NodeId, into branches_; one more at the end
  std::vector<Branch> branches_;
  std::vector<NodeId> postorder_;
  std::vector<Visit> path_;
  std::vector<ExitUse> uses_;
};

}  // namespace

void set_static_weights(Graph& graph) {
  CHECK(graph.root < graph.node_count && graph.exit < graph.node_count && graph.root != graph.exit)
      << "root " << graph.root << ", exit " << graph.exit << " of " << graph.node_count;
  CHECK(graph.edges.size() < kNone) << graph.edges.size() << " edges";
  Weigher(graph).run();
}

}  // namespace tally::placement
