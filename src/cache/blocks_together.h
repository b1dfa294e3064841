// Which blocks get their code together, when nothing is known of what will run.
//
// Problem.  In a first run nobody knows which blocks of a procedure will be executed; of a large
// program's, a third are.  To make all of them takes memory and time; to make each when control
// gets there takes a request for each.
//
// Idea.  A branch is followed where it is not unlikely by the rules of thumb
// (placement/weights.cpp): a way that they give less than 0.3 is not, but for ways out of loops,
// which are seldom only beside the turns of the loop.  Neither are the targets of a jump through a
// table, most of which are never jumped to.  What is reached from a block by edges that are
// followed is made with it:
//
//     A: test; je D         D is unlikely (it calls, far away): A, B, C are made with the entry A,
//     B: ...; jne C         and whoever comes to D first has D and E made.
//     C: ret
//     D: call abort_it; E: ...
//
// What a call comes back to is always made with the call, since landings are entered when calls are
// linked.
//
// Once all code has been made anew so that memory can be given back (compact.cpp), memory is what
// counts, and little is made: then a way must be likelier than another.
//
// With 0.3, of what cc1 translates 55 % are made where 38 % are executed, in 22,000 requests; with
// 0.5 it would be 48 % in 36,000 (docs/design.md, "Blocks without code").
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cfg/procedure.h"
#include "placement/placement.h"

namespace tally::engine {

// Which ways out of a block.
enum class Followed : uint8_t {
  kUnlessUnlikely,
  kIfLikely,
};

// By edge.  `graph` is the procedure's (make_graph), with its static weights.
std::vector<bool> followed_edges(const cfg::Procedure& procedure, const placement::Graph& graph,
                                 Followed which);

// As few as there can be: for tests.
std::vector<bool> edges_that_must_be_followed(const cfg::Procedure& procedure);

// The blocks that are made with `block`, which has no code yet, itself included, by address.
std::vector<uint32_t> blocks_together(const cfg::Procedure& procedure,
                                      const std::vector<bool>& followed, uint32_t block,
                                      const std::function<bool(uint32_t)>& has_code);

}  // namespace tally::engine
