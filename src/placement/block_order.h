// In which order the blocks of a procedure lie in the code, once it is known which way control
// goes.
//
// Problem.  Compilers lay code out by rules of thumb.  Where a hot path jumps from block to block,
// each jump costs, and blocks that never run lie between those that do, in the same lines of the
// instruction cache and the same pages.
//
// Idea (Pettis and Hansen, "Profile guided code positioning", PLDI 1990, section 4.1, "bottom-up").
// Edges are taken from the heaviest to the lightest; one whose source is the end of a chain and
// whose target is the beginning of another joins the two.  Then the chains follow each other, the
// entry's first, then the hottest first, and behind them all blocks that never ran.
//
//        A                     A->C 90, C->D 90, A->B 10, B->D 10 (by address: A B C D)
//     10/ \90
//      B   C                   A->C and C->D make the chain A C D; B is a chain of its own:
//     10\ /90                  A C D B, in which only the seldom way round jumps.
//        D
//
// Not handled here: what a jump costs on which processor, and the order of procedures.
#pragma once

#include <vector>

#include "placement/placement.h"

namespace tally::placement {

struct BlockOrder {
  std::vector<NodeId> nodes;  // all but EXIT, each once; the root first
  uint32_t hot = 0;           // that many of them have run, by the weights
};

// Edges that weigh less than this never ran.
inline constexpr double kRan = 1;

// `may_fall`, by EdgeId: whether the edge could be followed without a jump if its target lay next.
BlockOrder order_blocks(const Graph& graph, const std::vector<bool>& may_fall);

}  // namespace tally::placement
