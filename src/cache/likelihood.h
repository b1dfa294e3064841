// What machine code says about its branches before it has run.
//
// Problem.  The rules of placement/weights.cpp know graphs only, but what a branch asks for and
// where it leads says more than the shape: Ball and Larus, "Branch prediction for free" (PLDI
// 1993), get three branches in four right by their opcodes and by what their targets do.
//
// Idea.  A sign that speaks against a branch divides its odds, each on its own (Wu and Larus,
// "Static branch frequency and program profile analysis", MICRO 1994, combine them likewise):
//
//   jo, jp           never but for overflow and for numbers that are none       0.1
//   js               negative numbers are errors                                0.5
//   ja, jnbe         beyond a bound, of an array or of a switch                 0.5
//   test r64; jz     a null pointer                                             0.5
//   test mask; jnz   bits are mostly not set                                    0.5
//   jcc elsewhere    out of the procedure: into its cold part, or to a tail     0.25
//
// and the same for the inverted condition, where the other branch is the unlikely one.
//
// The factors are round numbers: those fitted to one set of programs were worse for another
// (docs/design.md).
#pragma once

#include "cfg/procedure.h"
#include "placement/placement.h"

namespace tally::engine {

// Fills in Edge::odds of the procedure's edges and Graph::calls; neither if the procedure has been
// relieved of its instructions.
void set_likelihoods(const cfg::Procedure& procedure, const cfg::CodeView& view,
                     placement::Graph& graph);

}  // namespace tally::engine
