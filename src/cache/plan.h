// From a procedure's graph to counters and back: which probe measures which edge.
//
// Placement speaks of edges; code has places.  A chord whose source has no other way out is counted
// inside the source block, one whose target has no other way in inside the target block: no jump is
// added, and any point of the block will do.  Only what is left gets a counter on the edge itself.
//
// Where weights were measured, they also say how the blocks lie best (placement/block_order.h).
//
// The same graph is built again when the run is over, with what was seen at run time on top: pairs
// of indirect branches, arrivals from elsewhere, abnormal flow.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cache/blocks_together.h"
#include "cfg/procedure.h"
#include "placement/placement.h"
#include "translate/unit.h"

namespace tally::engine {

enum class PlacementKind : uint8_t {
  kBlocks,
  kEdges,
  kFeedback,
  kNone,  // nothing is counted: what translation alone costs
};

// Weight of an edge in an earlier run; negative when not known.
using FeedbackWeights = std::function<double(LinkAddr from_block, LinkAddr to_block)>;

// What is known of a procedure from runs before.
struct MeasuredWeights {
  FeedbackWeights feedback;        // kFeedback
  std::span<const uint8_t> steps;  // kEdges; see edge_weights.h.  Empty: nothing is known
  bool order = true;               // blocks are to lie as the weights say, not by address
  bool from_callers = false;       // how often it was entered will be known (entry_callers.h)
  bool in_parts = false;           // not all blocks need get their code at once (defer.cpp)
  Followed followed = Followed::kUnlessUnlikely;  // ... but these together
  bool is_over = false;                           // ... and none of them until it runs again
  // Whether a register counts how often a block that leads to itself runs (inductions.h); none: no
  // block's does.
  std::function<bool(uint32_t block)> is_inductive = nullptr;
};

// The static graph: node i is block i, node blocks.size() is EXIT; edge i is the procedure's edge
// i; the last edge is the virtual EXIT -> root.
placement::Graph make_graph(const cfg::Procedure& procedure);

// Chooses the counters of one procedure, which has its instructions, and whose code is in `view`.
// `allocate` hands out counter numbers.
translate::Plan make_plan(const cfg::Procedure& procedure, const cfg::CodeView& view,
                          PlacementKind kind, const MeasuredWeights& measured,
                          const std::function<uint32_t()>& allocate);

// As if only the block at which the procedure begins had ever run: for tests of what is left out,
// and is then made all at once or in as many parts as can be.
enum class LeftOut : uint8_t { kTogether, kInParts };
void leave_entry_alone_in_body(const cfg::Procedure& procedure, LeftOut left_out,
                               translate::Plan& plan);

}  // namespace tally::engine
