// Where to put counters, and how to get every other count back.
//
// Problem.  An exact profile of a control-flow graph needs the count of every block and edge, yet
// counting each of them is slow.  Flow is conserved: what enters a block leaves it.  So a few edges
// determine all others.
//
// Idea (Ball and Larus, "Optimally profiling and tracing programs", section 3).  Add an edge
// EXIT -> root so that conservation also holds there, weigh the edges by how often we expect them
// to run, and take a maximum spanning tree.  Edges outside the tree (the chords) get a counter;
// edges of the tree follow by propagation, leaf by leaf (section 3.1).
//
//        root                  chords are counted:  A->C, B->C is in the tree, ...
//        /  \                  EXIT->root is seeded into the tree: it cannot be counted, and its
//       A    |                 derived count says how often the procedure ran.
//      / \   |
//     B-->C<-+
//         |
//        EXIT --- EXIT->root ---> root
//
// Three kinds of edge beyond the paper's:
//   kVirtual   EXIT -> root: no place in the code, never counted, seeded into the tree.
//   kMeasured  counted anyway by other means (an indirect jump's target has a counter of its own);
//              known when solving, so it never needs to be in the tree.
//   kNormal    everything else.
//
// Abnormal flow (section 3.1, Figure 4: exit in the middle of a call chain) enters the equations as
// source and sink terms of nodes; the engine's ledger supplies them.
//
// Not handled here: anything about machine code.  This room knows graphs only.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace tally::placement {

using NodeId = uint32_t;
using EdgeId = uint32_t;

enum class EdgeRole : uint8_t { kNormal, kVirtual, kMeasured };

struct Edge {
  NodeId from = 0;
  NodeId to = 0;
  EdgeRole role = EdgeRole::kNormal;
  double weight = 0;  // expected executions, >= 0; relative within one graph
  // What the code says about a branch before anything has run, > 0: how likely it is where an edge
  // of which nothing is known has 1.  Only set_static_weights looks at it.
  double odds = 1;
  bool leaves_loop = false;  // set_static_weights: at least one
};

// `exit` is a node of its own, distinct from `root`.  Self loops and parallel edges are allowed, so
// are nodes that cannot be reached from the root or cannot reach EXIT (dead code, endless loops).
struct Graph {
  uint32_t node_count = 0;
  NodeId root = 0;
  NodeId exit = 0;
  std::vector<Edge> edges;
  std::vector<bool> calls;  // by NodeId: ends in a call.  Empty: nothing is known
};

enum class Mode : uint8_t {
  kBlocks,  // a counter in every node but EXIT: the paper's "slow"
  kEdges,   // counters on the chords of a maximum spanning tree: "quick", or "feedback" when the
            // weights were measured
};

// Fills in Edge::weight by the paper's heuristic (section 5.1): a loop runs ten times; a loop
// entered N times with E exit edges gives N/E to each; other branches of a predicate are equally
// likely, but for those that signs speak against: one far forward (nodes are numbered in address
// order), one to a call, and what Edge::odds says.  Works on irreducible graphs (an entry of a loop
// that is not its header does not count as a back edge).  Near-linear time: this runs while the
// target waits.
void set_static_weights(Graph& graph);

struct Plan {
  Mode mode = Mode::kEdges;
  std::vector<bool> edge_counted;  // by EdgeId; only kNormal edges; empty in kBlocks
  std::vector<bool> node_counted;  // by NodeId; empty in kEdges
  double cost = 0;                 // sum of the weights of what is counted
};

// Chooses what to count for `mode` with the weights in `graph`.  In kEdges the uncounted kNormal
// and kVirtual edges form a maximum-weight spanning forest that contains the kVirtual ones.
Plan place_counters(const Graph& graph, Mode mode);

// Flow that appears at a node or vanishes there out of turn (program start inside a procedure,
// longjmp, exit in the middle of a call chain).  `entered` adds to what flows in, `left` to what
// flows out.
struct AbnormalFlow {
  NodeId node = 0;
  uint64_t entered = 0;
  uint64_t left = 0;
};

// What is known after a run.  An edge's value must be present where the plan counted it or its role
// is kMeasured; a node's where the plan counted it.
struct Measured {
  std::vector<std::optional<uint64_t>> edges;  // by EdgeId
  std::vector<std::optional<uint64_t>> nodes;  // by NodeId: times the node was entered
};

enum class Origin : uint8_t { kMeasured, kDerived, kUnknown };

struct Count {
  uint64_t value = 0;  // 0 when kUnknown
  Origin origin = Origin::kUnknown;
  bool operator==(const Count&) const = default;
};

// Something that does not add up.  Never silently repaired.
struct Imbalance {
  enum class Kind : uint8_t {
    kNegative,    // a derived count would be below zero
    kUnbalanced,  // all is known around a node, and in differs from out
    kUnknown,     // some counts could not be determined (only possible in kBlocks)
  };
  Kind kind = Kind::kUnbalanced;
  NodeId node = 0;
  int64_t excess = 0;  // in minus out
  bool operator==(const Imbalance&) const = default;
};

struct Solution {
  std::vector<Count> edges;  // by EdgeId
  std::vector<Count> nodes;  // by NodeId; a node's count is all that flowed in, abnormal included
  std::vector<Imbalance> imbalances;
  bool balanced() const { return imbalances.empty(); }
};

// Derives every other count by conservation of flow (section 3.1), then checks every node.
// Arithmetic is exact up to 2^64-1 per count (128-bit inside).  For a node v:
//   count(v) = sum(in) + entered = sum(out) + left.
// The errors: the sizes of `measured` do not fit the graph.
Result<Solution> propagate(const Graph& graph, const Measured& measured,
                           std::span<const AbnormalFlow> abnormal);

}  // namespace tally::placement
