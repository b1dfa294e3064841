// Which counts of a profile are not exact, by name, where solving shows it.
#pragma once

#include <vector>

#include "cache/translated.h"
#include "placement/placement.h"
#include "profile/model.h"

namespace tally::engine {

// Places where flow is not conserved.
void name_imbalances(const Unit& unit, const placement::Solution& solution,
                     std::vector<profile::Issue>& issues);

// Two calls in overlapping code that end at the same byte come back to one landing, which cannot
// tell them apart.  Where each call's block says how often it came back, that is no matter.  An
// open call's does not: its counter is in the landing, and the last such edge has it.
void name_shared_landings(const Unit& unit, const placement::Solution& solution,
                          std::vector<profile::Issue>& issues);

// Where flow is not conserved (a thread was killed and nobody saw where it was), more runs may
// have stopped short in a block than came to it.  What is left to say of it is that nothing is
// known.
void name_impossible(profile::Profile& profile);

}  // namespace tally::engine
